"""The job that scores one flight for whoever asks, once for each request."""

from datetime import date

import dagster as dg

from backfill_assets.core.partitions import parse_day
from backfill_assets.flights.models.catalogue import FLIGHT_MODELS
from backfill_assets.flights.models.scoring import Scoring
from backfill_assets.flights.models.steps import REQUEST_PREFIX
from backfill_assets.resources.launchpad import errors_in_words, form


def score_flight_job(scoring: Scoring) -> dg.JobDefinition:
    """Return the job that scores one flight, once for each request."""

    @dg.op(
        config_schema={
            "request": dg.Field(str, description="Your own name for this request, such as a UUID."),
            "date": dg.Field(str, description="YYYY-MM-DD, in 2013"),
            "airport": dg.Field(str, description=", ".join(FLIGHT_MODELS.unit_names)),
            "flight": dg.Field(str, description="Carrier and number, such as UA1545."),
        }
    )
    def score(context: dg.OpExecutionContext) -> None:
        asked = context.op_config
        with errors_in_words():
            scores = scoring.score_flight(
                asked["request"], _day(asked["date"]), asked["airport"], asked["flight"]
            )
        context.log.info(
            f"Flight {scores.flights[0]}: risk {scores.risks[0]:.3f}, anomaly "
            f"{scores.anomalies[0]:.3f}, by models {scores.model}"
        )
        context.add_output_metadata(
            {
                "risk": scores.risks[0],
                "anomaly": scores.anomalies[0],
                "trail": f"backfill-assets trail {REQUEST_PREFIX}{asked['request']}",
            }
        )

    example = {"request": "UUID", "date": "2013-10-07", "airport": "EWR", "flight": "UA1545"}

    @dg.job(
        name="score_flight",
        description=(
            "Score one flight. The same request again gets the stored answer; the same name for "
            "another flight is refused."
        ),
        config=form("score", **example),
    )
    def score_flight() -> None:
        score()

    return score_flight


def _day(text: str) -> date:
    day = parse_day(text)
    if day is None:
        raise dg.Failure(f"date {text!r}: give YYYY-MM-DD", allow_retries=False)
    return day
