"""The vocabulary that every stage shares: errors, losses, units, stacks, schema, slices and intervals."""
