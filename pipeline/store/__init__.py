"""The store: captures as Parquet, on a disk or an object store, written so that a crash leaves nothing half done."""
