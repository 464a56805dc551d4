"""A model behind HTTP: an API for programs and a page for people. Needs the extra `serve`.

`create_app(model)` is the ASGI application, to mount or to run by any server; `smoothlink serve` runs it by uvicorn.
"""

from smoothlink.serve.app import create_app
from smoothlink.serve.settings import Settings

__all__ = ["Settings", "create_app"]
