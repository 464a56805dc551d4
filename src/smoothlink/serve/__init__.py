"""A model behind HTTP: an API for programs and a page for people. Needs the extra `serve`.

`create_app(model)` is the ASGI application, to mount or to run by any server; `smoothlink serve` runs it by uvicorn.
"""

from typing import TYPE_CHECKING, Any

from smoothlink.serve.server_settings import Settings

if TYPE_CHECKING:
    from smoothlink.serve.web_app import create_app

__all__ = ["Settings", "create_app"]


def __getattr__(name: str) -> Any:
    """Loads FastAPI when the application is asked for: the command line looks at the defaults only."""
    if name != "create_app":
        raise AttributeError(f"module 'smoothlink.serve' has no attribute {name!r}")
    from smoothlink.serve.web_app import create_app

    return create_app
