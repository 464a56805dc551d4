"""Requests that schemathesis makes by the OpenAPI description, and against it, get what the description says."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from served import listening, text_model

from smoothlink.serve import ServerSettings

schemathesis.serializer.alias("application/x-ndjson", "text/plain")
# The description does not say that a request has either texts or vectors, nor what a table is.
NOT_SAID = [positive_data_acceptance]


@pytest.fixture(scope="module")
def operations(tmp_path_factory):
    with listening(text_model(), ServerSettings(store=str(tmp_path_factory.mktemp("store")))) as address:
        found = schemathesis.openapi.from_url(f"{address}/openapi.json").get_all_operations()
        yield {one.ok().label: one.ok() for one in found}


OPERATIONS = [
    *("POST /predict", "POST /explain", "GET /labels", "GET /model", "POST /table", "POST /table/file"),
    *("POST /corrections", "GET /health", "GET /metrics"),
]
WITHOUT_INPUT = ("GET /model", "GET /health", "GET /metrics")


def test_every_operation_is_tested(operations):
    assert list(operations) == OPERATIONS


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_every_response_is_as_described_and_none_is_an_error_of_the_server(operations, label, mode):
    if label in WITHOUT_INPUT and mode == "negative":
        return  # nothing can be wrong with them
    cases = operations[label].as_strategy(generation_mode=schemathesis.GenerationMode(mode))

    @seed(0)
    @settings(
        max_examples=30,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def check(case):
        response = case.call()
        assert response.status_code < 500
        case.validate_response(response, excluded_checks=NOT_SAID)

    check()
