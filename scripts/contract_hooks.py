"""What the contract's test changes about the calls that it makes up: nothing waits for long."""

import schemathesis

SOON_MS = 5


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if isinstance(body, dict) and isinstance(body.get("wait_ms"), int) and body["wait_ms"] > SOON_MS:
        body["wait_ms"] = SOON_MS
    if case.query and "timeout_ms" not in case.query and "wait" in case.query:
        case.query["timeout_ms"] = SOON_MS
