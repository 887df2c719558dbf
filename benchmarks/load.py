"""A mixed load for recordings: JSON, regular expressions, sorting, hashing, recursion."""

import hashlib
import json
import random
import re

random.seed(1)


def fibonacci(n: int) -> int:
    """Recurse, so that stacks are deep."""
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


while True:
    rows = [{str(column): random.random() * column for column in range(40)} for _ in range(50)]
    text = json.dumps(rows)
    json.loads(text)
    re.findall(r"\d+\.\d+", text)
    sorted(text)
    hashlib.sha256(text.encode()).digest()
    fibonacci(15)
