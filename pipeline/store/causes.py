"""What an object store's error means, in words: obstore and polars give the server's XML or a Rust error as text.

... 404 Not Found: <?xml ...><Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message>
... after 5 retries, max_retries: 5, retry_timeout: 45s  - HTTP error: error sending request ... ConnectionRefused
"""

from __future__ import annotations

import re

_CREDENTIALS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may do"
_ADDRESS = "check AWS_ENDPOINT_URL and the network, then run it again"
# by the code in the answer: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
_REMEDIES = {
    "NoSuchBucket": "make the bucket, or check its name and AWS_ENDPOINT_URL",
    "AccessDenied": _CREDENTIALS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": "renew the credentials",
    "PermanentRedirect": "set AWS_REGION to the bucket's region",
    "AuthorizationHeaderMalformed": "set AWS_REGION to the bucket's region",
    "SlowDown": "run it again later",
}
# by what the text holds where no server answered
_UNREACHED = (
    (r"Connection ?[Rr]efused", "nothing listens at the object store's address", _ADDRESS),
    (r"dns error|failed to lookup", "the object store's host name is not known", _ADDRESS),
    (r"kind: Timeout|timed out|TimedOut", "the object store did not answer in time", _ADDRESS),
    (r"certificate|tls handshake", "the object store's certificate is not trusted", "check AWS_ENDPOINT_URL"),
    (r"kind: Connect\b|client error \(Connect\)", "the object store cannot be reached", _ADDRESS),
    (r"token|[Cc]redential|169\.254\.169\.254", "no credentials for the object store", _CREDENTIALS),
)


def code_of(error: Exception) -> str:
    """Return the server's error code, '' where there is none."""
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return found.group(1) if found else ""


def explain(error: Exception, remedy: str) -> tuple[str, str]:
    """Return what went wrong and what to do; `remedy` is for what is not known here."""
    text = str(error).strip() or type(error).__name__
    code = code_of(error)
    if code:
        message = re.search(r"<Message>([^<]*)</Message>", text)
        words = message.group(1).strip().rstrip(".") if message else "the object store refused"
        return f"{words} ({code})", _REMEDIES.get(code, remedy)
    for pattern, words, known in _UNREACHED:
        if re.search(pattern, text):
            return words, known
    return text.splitlines()[0][:200], remedy
