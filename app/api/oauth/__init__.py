"""The OAuth endpoints, in OAuth's documents and errors; the reason of a refusal stands beside `error` as everywhere.

`authorize.py` asks a person (RFC 6749 §4.1), `token.py` issues (RFC 6749, 8693), `inspection.py` introspects and
revokes (RFC 7662, 7009). `form.py` reads what arrives, `client.py` proves who sent it, `failures.py` says what was
wrong.
"""

from fastapi import APIRouter

from app.api.oauth import authorize, inspection, token

router = APIRouter(prefix="/oauth", tags=["oauth"])
for _module in (authorize, token, inspection):
    router.include_router(_module.router)
