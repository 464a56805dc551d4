"""The web application: its routes, its page and its error responses."""

from __future__ import annotations

import asyncio
import json
import logging
import mimetypes
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from smoothlink import __version__
from smoothlink.errors import ModelFileError
from smoothlink.machines.threads import limit_threads
from smoothlink.serve import ServerSettings
from smoothlink.serve.batching import Batcher, Piece, Queue
from smoothlink.serve.corrections import store_correction
from smoothlink.serve.explain_request import PreparedRow, check_explained, explain_labels, prepare_row, warm_up
from smoothlink.serve.explain_request import to_json as explanation_json
from smoothlink.serve.limits import INTERNAL_ERROR, Limits
from smoothlink.serve.prometheus import ServerMetrics
from smoothlink.serve.schema import (
    CorrectionRequest,
    ErrorResponse,
    ExampleText,
    ExplainRequest,
    ExplainResponse,
    ForgetResponse,
    HealthResponse,
    LabelledRequest,
    LabelsResponse,
    ModelResponse,
    PredictRequest,
    PredictResponse,
    RefusedRequest,
    UpdateResponse,
    error_response,
    to_document,
    validation_reason,
)
from smoothlink.serve.served_rows import ServedRows
from smoothlink.serve.service import (
    SIZE_PER_ROW,
    PredictionService,
    RowPrediction,
    RowsRequest,
    is_long,
    row_size,
    stack_vectors,
)
from smoothlink.serve.updates import FORGET, UPDATE, UpdateClient
from smoothlink.serve.uploads import KINDS, MIME, table_file, table_lines

log = logging.getLogger("smoothlink.serve")
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorResponse, "description": "The body is not JSON."},
    401: {"model": ErrorResponse, "description": "The token is missing or wrong."},
    408: {"model": ErrorResponse, "description": "The request did not arrive in time."},
    413: {"model": ErrorResponse, "description": "The request or its response is too large."},
    415: {"model": ErrorResponse, "description": "The body was not sent as JSON."},
    421: {"model": ErrorResponse, "description": "The request calls the server by a name that it does not have."},
    429: {"model": ErrorResponse, "description": "Too many rows of this client are waiting."},
    422: {"model": ErrorResponse, "description": "A field is not as described, or the model has no such label."},
    507: {"model": ErrorResponse, "description": "The server's disk is full or may not be written to."},
    503: {"model": ErrorResponse, "description": "The server is busy, or the model file was damaged."},
    504: {"model": ErrorResponse, "description": "The response was not ready in time."},
}
REFUSALS = (400, 401, 408, 413, 415, 422, 429, 503, 504)  # of requests with JSON
REASONS = {  # instead of those of starlette
    "Not Found": "This path does not exist. The page is at /, the API is described at /docs.",
    "Method Not Allowed": "This path does not take this method. The API is described at /docs.",
    "There was an error parsing the body": "The body is not JSON in UTF-8.",
}
NOT_JSON = "The body must be JSON: send the header Content-Type: application/json."
TABLES_AT_ONCE = 2  # that are read or written; others wait before they are received
DESCRIPTION = (
    "Labels for texts or vectors, with calibrated probabilities. "
    'A request that is refused gets the reason in JSON: `{"status": 422, "reason": "..."}`.'
)
EXPLAINED_ROWS = 4  # that a label to explain counts for
Result = TypeVar("Result")


def create_app(
    model: Any,
    settings: ServerSettings | None = None,
    *,
    name: str = "model",
    metrics: ServerMetrics | None = None,
    check: Callable[[], None] = lambda: None,
    processes: int = 1,
    updates: UpdateClient | None = None,
) -> ASGIApp:
    """Returns the ASGI application that serves a fitted model under a name. `metrics` are those of the process; `check`
    is called before and after each use of the model and raises where it must not be used; `processes` serve it
    together; `updates` leads to the process that updates the model."""
    settings, metrics = settings or ServerSettings(), metrics or ServerMetrics()
    service = PredictionService(model, settings, check)

    def describe_model() -> None:
        metrics.model = {"name": name, "takes": service.takes, "labels": str(len(service.names))}

    describe_model()

    def checked(work: Callable[[], Result]) -> Result:
        service.check()
        result = work()
        service.check()
        return result

    def count_batch(pieces: int) -> None:
        metrics.batches.observe(pieces)
        metrics.waiting.set(batcher.rows)

    def work_on(requests: list[RowsRequest | Callable[[], Any]]) -> list[Any]:
        """Returns the responses to predictions, made together, and to explanations."""
        rows = [request for request in requests if isinstance(request, RowsRequest)]
        predicted = iter(service.predict_batch(rows) if rows else [])
        metrics.rows.inc(sum(len(request.rows) for request in rows))
        return [
            attempt(partial(render, service, next(predicted)) if isinstance(request, RowsRequest) else request)
            for request in requests
        ]

    batcher: Batcher[Any, Any] = Batcher(
        lambda requests: checked(lambda: work_on(requests)),
        batch_rows=settings.batch_rows,
        piece_rows=settings.piece_rows,
        max_waiting=settings.max_waiting,
        wait=settings.batch_wait,
        initializer=None if settings.threads is None else partial(limit_threads, settings.threads),
        on_batch=count_batch,
    )
    batcher.thread.submit(service.warm_up).result()
    explained = batcher.thread.submit(warm_up, service).result()
    if service.classifier.model_.reference is not None:
        service.watch = ServedRows(model, processes, metrics.count_rows)
    converters = ThreadPoolExecutor(TABLES_AT_ONCE, "smoothlink-tables")
    tables = asyncio.Semaphore(TABLES_AT_ONCE)
    table_of: weakref.WeakValueDictionary[str | None, asyncio.Lock] = weakref.WeakValueDictionary()  # by client
    source = service.source

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.thread.shutdown()
        batcher.second_thread.shutdown()
        converters.shutdown()

    app = FastAPI(
        title="smoothlink",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        servers=[{"url": "."}],
    )
    app.add_exception_handler(HTTPException, respond_http_error)
    app.add_exception_handler(RequestValidationError, respond_invalid)
    app.add_exception_handler(ModelFileError, respond_damaged)
    app.add_exception_handler(Exception, respond_bug)

    @app.post("/predict", response_model=PredictResponse, responses=errors(*REFUSALS), tags=["model"])
    async def predict(body: PredictRequest, sender: Request) -> Response:
        """Returns the labels of texts or vectors with their probabilities, the most probable first."""
        request = service.check_request(
            body.documents,
            body.vectors,
            k=body.k,
            threshold=body.threshold,
            sets=body.threshold is None and "threshold" in body.model_fields_set,
            only=body.only or (),
            coverage=body.coverage,
            recall=body.recall,
        )
        pieces: list[Piece[Any]] = request.pieces(settings.piece_rows)

        def with_features() -> list[Piece[Any]]:
            return checked(lambda: service.with_features(request)).pieces(settings.piece_rows)

        prepare = with_features if any(map(is_long, request.rows)) else None
        count = 0

        def check_size(rendered: Rendered) -> None:
            nonlocal count
            count += rendered.labels
            service.check_response(count)

        found = await batcher.submit(pieces, client=client_of(sender), check=check_size, prepare=prepare)
        return json_text("predictions", [rendered.text for rendered in found])

    @app.post("/explain", response_model=ExplainResponse, responses=errors(*REFUSALS), tags=["model"])
    async def explain(body: ExplainRequest, sender: Request) -> Response:
        """Returns which words or features raise or lower a label's score, and which labels often occur with it."""
        texts = None if body.text is None else [to_document(body.text, body.numbers)]
        vectors = None if body.vector is None else [body.vector]
        row = service.check_request(texts, vectors).rows[0]
        numbers = service.label_numbers(body.labels or ())
        check_explained(service, row)
        prepared: list[PreparedRow] = []
        rows = EXPLAINED_ROWS + row_size(row) // SIZE_PER_ROW
        groups: list[tuple[int, ...]] = [(number,) for number in numbers] or [()]

        def prepare() -> list[Piece[Any]]:
            prepared.append(checked(lambda: prepare_row(service, row)))
            return [Piece(partial(explain_labels, service, prepared[0].X, group), rows) for group in groups]

        def render_all() -> str:
            each = (one for group in found for one in group)
            return ",".join(to_text(explanation_json(service, prepared[0], one, body.top)) for one in each)

        pieces: list[Piece[Any]] = [Piece(None, rows) for _ in groups]
        found = await batcher.submit(pieces, client=client_of(sender), prepare=prepare)
        text = await asyncio.get_running_loop().run_in_executor(batcher.second_thread, render_all)
        return json_text("explanations", [text])

    @app.get("/labels", responses=errors(401, 422, 503), tags=["model"])
    def labels(
        q: Annotated[str, Query(max_length=200, description="A part of the name. The default is all labels.")] = "",
        offset: Annotated[int, Query(ge=0, lt=1 << 31)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        vocabulary: Annotated[
            bool, Query(description="Whether to search in the whole vocabulary, also what the model does not know.")
        ] = False,
    ) -> LabelsResponse:
        """Returns labels by a part of their names: those that begin with it first, in alphabetical order."""
        total, found = checked(lambda: service.search_labels(q, offset, limit, vocabulary=vocabulary))
        return LabelsResponse(total=total, offset=offset, labels=found)

    @app.get("/model", responses=errors(401, 503), tags=["model"])
    async def about() -> ModelResponse:
        """Returns what the model is and which rows it takes."""
        examples = getattr(service.model, "examples_", [])
        return ModelResponse(
            name=name,
            takes=service.takes,
            labels=len(service.names),
            features=service.classifier.n_features_in_,
            version=__version__,
            examples=[ExampleText(text=one.text, labels=one.labels) for one in examples],
            multiclass=service.multiclass,
            threshold=checked(lambda: service.threshold),
            guarantees=checked(lambda: service.guarantees),
            text_columns=list(source.columns),
            numbers=service.width,
            number_columns=list(source.numbers),
            labels_column=source.labels[0] if len(source.labels) == 1 and "*" not in source.labels[0] else None,
            id_column=source.id,
            stores=settings.store is not None,
            updatable=updates is not None,
            max_rows=settings.max_rows,
            max_labels=min(settings.max_labels, len(service.names)),
            max_body=settings.max_body,
            max_upload=settings.max_upload,
        )

    async def convert(request: Request, work: Callable[[bytes], bytes]) -> bytes:
        """Returns what becomes of a body, in a thread of its own, so that other requests are served meanwhile. A client
        has one table at a time, so that its slow ones are not all that are received."""
        async with table_of.setdefault(client_of(request), asyncio.Lock()), tables:
            body = await request.body()
            return await asyncio.get_running_loop().run_in_executor(converters, work, body)

    @app.post("/table", **bytes_described("application/octet-stream", "application/x-ndjson"))
    async def read_upload(
        request: Request,
        name: Annotated[str, Query(max_length=1000, description=f"The name of the file: .{', .'.join(KINDS)}.")],
        encoding: Annotated[
            str | None, Query(max_length=40, description="Such as cp1252. The default is UTF-8 or UTF-16.")
        ] = None,
    ) -> Response:
        """Returns the table in a file, which is the body: {"columns": [...]}, then the list of each row's cells, a line
        of JSON each. Nothing is stored."""
        lines = await convert(request, partial(table_lines, name=name, encoding=encoding, max_size=settings.max_upload))
        return Response(lines, media_type="application/x-ndjson")

    @app.post("/table/file", **bytes_described("application/x-ndjson", "application/octet-stream"))
    async def write_download(
        request: Request, kind: Annotated[str, Query(description=f"The format: {', '.join(KINDS)}.")]
    ) -> Response:
        """Returns a table as a file that smoothlink train takes. The body is in lines of JSON:
        {"columns": [...], "labels": "tags"}, then the list of each row's cells; that of the labels is a list."""
        made = await convert(request, partial(table_file, kind=kind, separator=source.separator))
        return Response(made, media_type=MIME[kind])

    if updates is not None:
        changing: Queue[Any, Any] = Queue(settings.max_waiting)  # rows whose changes are not acknowledged yet

        async def change(kind: str, body: LabelledRequest, sender: Request) -> dict[str, Any]:
            if not is_json(sender):  # a page of another site may send whatever is not declared as JSON
                raise RefusedRequest(415, NOT_JSON)
            rows: Any = service.check_request(body.documents, body.vectors).rows
            client, count = client_of(sender), len(rows)
            changing.check_room(count, client)
            changing.rows[client] += count
            try:
                if service.takes == "vectors":
                    stack = partial(stack_vectors, rows, service.classifier.n_features_in_)
                    rows = await asyncio.get_running_loop().run_in_executor(batcher.second_thread, stack)
                outcome = await updates.send(kind, rows, body.labels)
            finally:
                changing.forget(client, count)
            metrics.count_change(kind, count)
            return outcome

        @app.post("/update", responses=errors(*REFUSALS, 507), tags=["updates"])
        async def update(body: LabelledRequest, sender: Request) -> UpdateResponse:
            """Lets the model learn rows, and labels that are new to it; returns once they are on the server's disk. A
            row that is sent twice counts twice."""
            return UpdateResponse(**await change(UPDATE, body, sender))

        @app.post("/forget", responses=errors(*REFUSALS, 507), tags=["updates"])
        async def forget(body: LabelledRequest, sender: Request) -> ForgetResponse:
            """Lets the model forget rows that it has learnt, which are sent with all of their labels; returns once no
            file of the server has what only they had."""
            return ForgetResponse(**await change(FORGET, body, sender))

        def serve_model(model: Any) -> None:
            newer = PredictionService(model, settings, check, service)
            newer.watch = service.watch
            if newer.watch is not None:
                newer.watch.follow(newer.classifier.model_)
            batcher.thread.submit(service.become, newer).result()
            describe_model()

        updates.follow(serve_model, metrics.visible.observe)

    if settings.store is not None:
        store = partial(store_correction, settings.store)

        @app.post("/corrections", responses=errors(400, 401, 408, 413, 415, 422, 504, 507), tags=["tables"])
        async def correct(body: CorrectionRequest) -> HealthResponse:
            """Appends a document and its labels to corrections.jsonl in the folder of --store; of several lines for one
            document the last counts."""
            await asyncio.get_running_loop().run_in_executor(None, store, body, name)
            return HealthResponse(status="ok")

    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_model=HealthResponse, responses=errors(503), tags=["server"])
    async def health() -> Response:
        """Returns whether the server works."""
        service.check()
        return Response(to_text({"status": "ok"}), media_type="application/json")

    @app.get("/metrics", response_class=PlainTextResponse, responses=errors(401), tags=["server"])
    async def prometheus() -> Response:
        """Returns the metrics of all worker processes together, in Prometheus's text format."""
        metrics.waiting.set(batcher.rows)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    add_page(app)
    if settings.token is None:  # else they would show a training text and a label to those who have none
        add_examples(app, service, explained)
    add_token_to_description(app, settings)
    return Limits(app, settings, metrics)


def client_of(request: Request) -> str | None:
    """Returns the address of a client, by which clients are told apart."""
    return request.client.host if request.client else None


def is_json(request: Request) -> bool:
    """Returns whether the body is declared as JSON."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower().endswith("json")


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the descriptions of these refusals, and of the one that every request may meet."""
    return {status: ERRORS[status] for status in sorted((421, *statuses))}


def bytes_described(received: str, sent: str) -> dict[str, Any]:
    """Returns the options of a route whose body and response are not one JSON value."""
    content = {"schema": {"type": "string", "format": "binary"}}
    return {
        "response_class": Response,
        "responses": {200: {"content": {sent: content}, "description": "Done."}, **errors(401, 408, 413, 422, 504)},
        "openapi_extra": {"requestBody": {"content": {received: content}, "required": True}},
        "tags": ["tables"],
    }


def to_json(service: PredictionService, prediction: RowPrediction) -> dict[str, Any]:
    """Returns a prediction in JSON's types."""
    each = zip(prediction.names, prediction.probabilities, prediction.predicted, strict=True)
    labels = [
        {**service.label_and_name(label), "probability": round(p, 6), "predicted": predicted}
        for label, p, predicted in each
    ]
    return {"labels": labels, "features": prediction.features}


class Rendered(NamedTuple):
    """Predictions in JSON, and how many labels they have. They are made in the thread of the model, since the one
    that receives requests must never be busy for long."""

    labels: int
    text: str  # values with commas between them


def render(service: PredictionService, predictions: list[RowPrediction] | Exception) -> Rendered:
    if isinstance(predictions, Exception):
        raise predictions
    text = ",".join(to_text(to_json(service, prediction)) for prediction in predictions)
    return Rendered(sum(len(prediction.names) for prediction in predictions), text)


def attempt(work: Callable[[], Any]) -> Any:
    """Returns the result, or the error."""
    try:
        return work()
    except Exception as error:
        return error


def to_text(value: Any) -> str:
    """Returns JSON that is not validated: that would take longer than the prediction."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def json_text(name: str, parts: list[str]) -> Response:
    """Returns the response {name: [the values of all parts]}."""
    return Response(f'{{"{name}":[{",".join(parts)}]}}', media_type="application/json")


class PageFiles(StaticFiles):
    """The files of the page. Browsers check each time whether one changed, so that no old script meets a new page."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


def add_page(app: FastAPI) -> None:
    """Adds /, /docs and their files at /page/."""
    mimetypes.add_type("text/javascript", ".js")  # which browsers insist on; some Windows registries say text/plain
    files = PageFiles(packages=[("smoothlink.serve", "page")])
    app.mount("/page", files)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs(request: Request) -> Response:
        return await files.get_response("docs.html", request.scope)


async def respond_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, REASONS.get(error.detail, error.detail), error.headers)


async def respond_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if any(found["loc"][0] == "body" for found in error.errors()) and not is_json(request):
        return error_response(415, NOT_JSON)
    if any(found["type"] == "json_invalid" for found in error.errors()):
        return error_response(400, "The body is not JSON in UTF-8.")
    return error_response(422, validation_reason(error.errors()))


async def respond_damaged(_: Request, error: Exception) -> Response:
    log.error("%s", error)
    return error_response(503, "The model file is damaged: the server's log says where.")


async def respond_bug(_: Request, error: Exception) -> Response:
    return error_response(500, INTERNAL_ERROR)


def add_examples(app: FastAPI, service: PredictionService, explained: bool) -> None:
    """Describes requests that this model can respond to."""
    schemas = app.openapi()["components"]["schemas"]
    row, label = service.example_row(), service.names[0]
    if service.takes == "texts":
        schemas["PredictRequest"]["examples"] = [{"texts": [row], "k": 5}]
        explain = {"text": row, "labels": [label]}
    else:
        vector = row.model_dump()
        schemas["PredictRequest"]["examples"] = [{"vectors": [vector], "k": 5}]
        explain = {"vector": vector, "labels": [label]}
    schemas["ExplainRequest"]["examples"] = [explain] if explained else []


def add_token_to_description(app: FastAPI, settings: ServerSettings) -> None:
    """Describes the token in the OpenAPI description, where one is needed."""
    description = app.openapi()
    if settings.token is not None:
        description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in description["paths"].items():
            for method in methods.values():
                method["security"] = [] if path == "/health" else [{"token": []}]
