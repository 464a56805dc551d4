"""The stages of a fit that may have been done by an earlier run that was killed: each is put by and taken up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.fitting.checkpoint import Work, checksum
from smoothlink.fitting.choose import Choice, Link
from smoothlink.fitting.inputs import Settled, settle
from smoothlink.fitting.judge import Verdict, descent, job_for, judge
from smoothlink.fitting.options import Chosen, Clock, Options, Setup
from smoothlink.fitting.spread import spread_decoder
from smoothlink.machines.arrays import host
from smoothlink.machines.cluster import ClusterRows
from smoothlink.steps.calibrate import Calibration
from smoothlink.steps.descend import Run
from smoothlink.steps.fit import squared, squared_parts

Array = NDArray[Any]


def settled(options: Options, make: Callable[[Options], Setup], work: Work) -> Settled:
    """`settle`, or what an earlier run settled."""
    kept = work.recall("choose")
    if kept is None:
        setup, c = settle(options, make)
        inputs = setup.inputs
        kernel = {"kernel": None if inputs.kernel is None else str(inputs.kernel), "bandwidth": inputs.bandwidth}
        work.keep("choose", {**kernel, "chosen": c.chosen, "how": c.how, "best": c.criterion, "point": c.point})
        return Settled(setup, c)
    story = kept[0]
    chosen, kernel_stage = Chosen(*story["chosen"]), {"input_kernel": story["kernel"]}
    if story["kernel"] is not None:
        kernel_stage["input_bandwidth"] = story["bandwidth"]
    choice = Choice(chosen, story["how"], story["best"], tuple(story["point"]))
    return Settled(make(replace(options, **kernel_stage)), choice)


def judged(setup: Setup, options: Options, chosen: Chosen) -> Verdict:
    """`judge`, or what an earlier run found."""
    work = setup.work
    kept = work.recall("calibrate")
    if kept is not None:
        meta, arrays = kept
        calibration = Calibration(arrays["knots"], arrays["values"], meta["temperature"], tuple(meta["first"]))
        found = Verdict(Chosen(*meta["chosen"]), calibration, arrays["thresholds"], meta["held"], meta["criteria"])
    else:
        found = judge(setup, options, chosen)
        map_, meta = found.calibration, {"chosen": found.chosen, "held": found.held_rows, "criteria": found.criteria}
        arrays = {"knots": map_.knots, "values": map_.values, "thresholds": found.thresholds}
        numbers = {"temperature": float(map_.temperature), "first": list(map_.first)}
        work.keep("calibrate", {**meta, **numbers}, **arrays)
    work.forget("held")  # what fits without the held-out rows put by
    return found


def decode(link: Link, chosen: Chosen, setup: Setup, options: Options, clock: Clock) -> Any:
    """V by the chosen loss over all rows."""
    work = setup.work
    if isinstance(link.rows, ClusterRows) and link.rows.cluster.shards is not None:
        job = job_for(link, chosen, setup, options)
        return spread_decoder(link.rows, link.sums, job, chosen.loss, chosen.passes, link.rows.cluster.shards)
    if chosen.loss == "squared" and work.plan.label_group is None and not work.keeps:
        return np.ascontiguousarray(host(squared(link.sums, chosen.final_ridge, setup.smoothing)))
    if chosen.loss == "squared":
        return decode_in_file(work, link, chosen, setup, clock)
    run, kept = Run(), work.recall("fit")
    if kept is not None:
        run = Run(kept[1]["V"], kept[1].get("velocity"), kept[0]["passes"])
    sweeps = descent(chosen.loss, link, chosen, setup, options, run)
    V = None if kept is None else kept[1]["decoded"]
    while run.sweep < max(1, chosen.passes):
        if run.sweep:
            clock.tell("fit", run.sweep / chosen.passes)
        V = next(sweeps)
        if work.keeps:
            velocity = {} if run.velocity is None else {"velocity": host(run.velocity)}
            work.keep("fit", {"passes": run.sweep}, V=host(run.V), decoded=host(V), **velocity)
    return np.ascontiguousarray(host(V))


def decode_in_file(work: Work, link: Link, chosen: Chosen, setup: Setup, clock: Clock) -> Array:
    """V of the squared loss, block of labels after block of labels, in a file that the model maps."""
    s, c = link.sums.targets.shape
    file, kept = work.kept_array("decoder", (s, c)), work.recall("fit")
    ends: list[list[int]] = [] if kept is None else kept[0]["blocks"]  # last label and checksum of each block done
    done = 0
    for end, known in ends:
        if checksum(file.columns(slice(done, end))) != known:
            raise work.damage("decoder.array", f"labels {done} to {end - 1} are not those that were written")
        done = end
    for labels, part in squared_parts(link.sums, chosen.final_ridge, setup.smoothing, done):
        part = host(part)
        file.put_columns(labels, part)
        if work.keeps:
            file.flush()
            ends.append([labels.stop, checksum(part)])
        work.keep("fit", {"blocks": ends})
        clock.tell("fit", labels.stop / c)
    return file.mapped()
