"""The application: paths -> questions to the model."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from smoothlink import __version__
from smoothlink.errors import ModelFileError
from smoothlink.machines.threads import limit_threads
from smoothlink.serve.batching import Anything, Batcher
from smoothlink.serve.explain_request import explained, wanted, warm_up
from smoothlink.serve.http_errors import complaints, problem
from smoothlink.serve.limits import Guard
from smoothlink.serve.page_files import add_page
from smoothlink.serve.prometheus import Metrics, Shared
from smoothlink.serve.schema import (
    About,
    Explained,
    ExplainRequest,
    Health,
    Known,
    Labels,
    Predicted,
    PredictRequest,
    Problem,
)
from smoothlink.serve.server_settings import Settings
from smoothlink.serve.service import Answer, Oracle, Question

log = logging.getLogger("smoothlink.serve")
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "Not JSON."},
    401: {"model": Problem, "description": "The token is missing or wrong."},
    408: {"model": Problem, "description": "The request did not arrive in time."},
    413: {"model": Problem, "description": "Too large."},
    415: {"model": Problem, "description": "Not sent as JSON."},
    422: {"model": Problem, "description": "Not what the description says, or not known to the model."},
    503: {"model": Problem, "description": "Busy: try again in a second; or the model file was damaged."},
    504: {"model": Problem, "description": "No answer in time."},
}
TOLD = {
    "Not Found": "There is nothing here. The page is at /, the API is described at /docs.",
    "Method Not Allowed": "Not by this method. The API is described at /docs.",
    "There was an error parsing the body": "The body is not JSON in UTF-8.",
}
ABOUT = (
    "Labels for texts or vectors, with calibrated probabilities. "
    'What is refused is told why, in JSON: `{"status": 422, "reason": "..."}`.'
)


def create_app(
    model: Any,
    settings: Settings | None = None,
    *,
    name: str = "model",
    shared: Shared | None = None,
    check: Callable[[], None] = lambda: None,
) -> ASGIApp:
    """The ASGI application that serves a fitted model; `name` is what it is called, `shared` the numbers of several
    processes together, `check` is called before and after each batch and raises where it must not be answered."""
    settings = settings or Settings()
    oracle = Oracle(model, settings)
    metrics = Metrics({"name": name, "takes": oracle.takes, "labels": str(len(oracle.names))}, shared)
    batcher: Batcher[Question, list[Answer]] = Batcher(
        lambda questions: checked(check, lambda: oracle.answer_all(questions)),
        batch_rows=settings.batch_rows,
        max_waiting=settings.max_waiting,
        wait=settings.batch_wait,
        begin=None if settings.threads is None else partial(limit_threads, settings.threads),
        notify=lambda questions, rows: metrics.batch(questions, rows, batcher.rows),
    )

    for warm in (oracle.warm_up, partial(warm_up, oracle)):
        batcher.thread.submit(warm).result()

    app = bare_app(batcher)
    add_questions(app, oracle, batcher, check)
    add_facts(app, oracle, metrics, batcher, settings, name, check)
    add_page(app)
    describe_token(app, settings)
    return Guard(app, settings, metrics)


def checked(check: Callable[[], None], work: Callable[[], Anything]) -> Anything:
    """What the work gives, if the model file was the same before and after."""
    check()
    found = work()
    check()
    return found


def bare_app(batcher: Batcher[Question, list[Answer]]) -> FastAPI:
    """An application without paths, which ends the batcher's thread when it ends and tells errors in JSON."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.close()

    app = FastAPI(
        title="smoothlink",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        servers=[{"url": "."}],
    )
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(ModelFileError, damaged)
    app.add_exception_handler(Exception, failed)
    return app


def add_questions(
    app: FastAPI, oracle: Oracle, batcher: Batcher[Question, list[Answer]], check: Callable[[], None]
) -> None:
    """The paths that ask the model."""

    @app.post("/predict", response_model=Predicted, responses=REFUSALS, tags=["questions"])
    async def predict(asked: PredictRequest) -> Response:
        """The labels of texts or vectors with their probabilities, the best first."""
        question = oracle.question(
            asked.texts, asked.vectors, k=asked.k, threshold=asked.threshold, only=asked.only or ()
        )
        found = await batcher.ask(question, len(question.rows))
        oracle.check_size(found)
        return as_json({"predictions": [spoken(answer) for answer in found]})

    @app.post("/explain", response_model=Explained, responses=REFUSALS, tags=["questions"])
    async def explain(asked: ExplainRequest) -> Response:
        """Which words or features spoke for a label, and which labels travel with it."""
        question = wanted(oracle, asked)
        found = await batcher.aside(lambda: checked(check, lambda: explained(oracle, question)))
        return as_json({"explanations": found})


def add_facts(
    app: FastAPI,
    oracle: Oracle,
    metrics: Metrics,
    batcher: Batcher[Question, list[Answer]],
    settings: Settings,
    name: str,
    check: Callable[[], None],
) -> None:
    """The paths that tell of the model and of the server."""

    @app.get("/labels", responses=few(401, 422), tags=["facts"])
    def labels(
        q: Annotated[str, Query(max_length=200, description="A part of the name; empty: all labels.")] = "",
        offset: Annotated[int, Query(ge=0, lt=1 << 31)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    ) -> Labels:
        """Labels by a part of their names: those that begin with it first, in alphabetical order."""
        total, found = oracle.search(q, offset, limit)
        known = [Known(label=oracle.names[j], number=j, count=float(oracle.counts[j])) for j in found]
        return Labels(total=total, offset=offset, labels=known)

    @app.get("/model", responses=few(401), tags=["facts"])
    async def about() -> About:
        """What is served, and what it takes."""
        return About(
            name=name,
            takes=oracle.takes,
            labels=len(oracle.names),
            features=oracle.classifier.n_features_in_,
            version=__version__,
            examples=oracle.examples,
            max_rows=settings.max_rows,
            max_labels=min(settings.max_labels, len(oracle.names)),
            max_body=settings.max_body,
        )

    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_model=Health, tags=["facts"])
    async def health() -> Response:
        """Whether it serves."""
        check()
        return as_json({"status": "ok"})

    @app.get("/metrics", responses=few(401), tags=["facts"])
    async def prometheus() -> Response:
        """Counts in Prometheus's text format, of all worker processes together."""
        metrics.set("waiting", batcher.rows)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def few(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: REFUSALS[status] for status in statuses}


def spoken(answer: Answer) -> dict[str, Any]:
    """An answer in JSON's types."""
    pairs = zip(answer.names, answer.probabilities, strict=True)
    return {"labels": [{"label": name, "probability": round(p, 6)} for name, p in pairs], "features": answer.features}


def as_json(value: Any) -> Response:
    """Already of the described shape: checking it again would take longer than making it."""
    return Response(json.dumps(value, allow_nan=False, separators=(",", ":")), media_type="application/json")


async def refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, TOLD.get(error.detail, error.detail), error.headers)


async def invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    kind = request.headers.get("content-type", "")
    if request.method == "POST" and not kind.partition(";")[0].strip().lower().endswith("json"):
        return problem(415, "The body must be JSON: send the header Content-Type: application/json.")
    if any(found["type"] == "json_invalid" for found in error.errors()):
        return problem(400, "The body is not JSON in UTF-8.")
    return problem(422, complaints(error.errors()))


async def damaged(_: Request, error: Exception) -> Response:
    log.error("%s", error)
    return problem(503, "The model file is damaged: the server's log says where.")


async def failed(_: Request, error: Exception) -> Response:
    return problem(500, "A bug in smoothlink: the server's log has a traceback. Please report it.")


def describe_token(app: FastAPI, settings: Settings) -> None:
    """Tells of the token in the OpenAPI description, where one is needed."""
    described = app.openapi()
    if settings.token is not None:
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in described["paths"].items():
            for method in methods.values():
                method["security"] = [] if path == "/health" else [{"token": []}]
