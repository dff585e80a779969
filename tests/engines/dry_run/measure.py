"""Runs pretrain_gpt.py of a checkout for a few steps, and writes what PyTorch had allocated in each.

    measure.py CHECKOUT RESULT.json [flags of pretrain_gpt.py...]

Under libfakecuda.so, with the ranks' environment (RANK, WORLD_SIZE) of the one rank that it is, and
--fake-process-group among the flags. "at_peak" says who holds the peak of the last step, "at_capture" that of what came
before the first one, if it is higher. DRY_RUN_STEPS says how many steps (3).
"""
import collections
import json
import os
import runpy
import sys
import time
import traceback

import torch

import fake_kernels

STEPS = int(os.environ.get("DRY_RUN_STEPS", "3"))
checkout, result_path = sys.argv[1:3]
steps = []
result = {"flags": sys.argv[3:], "gpus": int(os.environ["WORLD_SIZE"]), "rank": int(os.environ["RANK"]), "steps": steps}


def place_of(frames):
    """The lines of Megatron-LM and its libraries that asked for memory, innermost first."""
    parts = ("/megatron/", "/transformer_engine/", "/fla/")
    names = []
    for frame in frames:
        for part in parts:
            if part in frame["filename"]:
                names.append("%s:%d(%s)" % (frame["filename"].split(part)[-1], frame["line"], frame["name"]))
                break
    return " < ".join(names[:5]) or (frames[0]["name"] if frames else "autograd")


def holders(live):
    groups = collections.defaultdict(lambda: [0, 0])
    for size, place in live.values():
        groups[place][0] += size
        groups[place][1] += 1
    rows = sorted(groups.items(), key=lambda group: -group[1][0])
    return [{"bytes": size, "tensors": count, "where": place} for place, (size, count) in rows if size > 1 << 19][:90]


def replay():
    """Goes through all allocations once to find the two moments, and once to see what lives there."""
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    begin, end = steps[-1]["begin_us"], steps[-1]["end_us"]
    total, sizes = 0, {}
    peak, capture = (-1, -1), (-1, -1)
    for number, event in enumerate(events):
        if event["action"] == "alloc":
            sizes[event["addr"]] = event["size"]
            total += event["size"]
        elif event["action"] in ("free", "free_requested"):
            total -= sizes.pop(event["addr"], 0)
        if begin <= event["time_us"] <= end:
            peak = max(peak, (total, -number))
        elif event["time_us"] < steps[0]["begin_us"]:
            capture = max(capture, (total, -number))
    live, places = {}, {}
    for number, event in enumerate(events):
        if event["action"] == "alloc":
            key = tuple((frame["filename"], frame["line"]) for frame in event["frames"][:14])
            if key not in places:
                places[key] = place_of(event["frames"])
            live[event["addr"]] = (event["size"], places[key])
        elif event["action"] in ("free", "free_requested"):
            live.pop(event["addr"], None)
        if number == -capture[1] and steps[0]["before"] > steps[-1]["peak"]:
            result["at_capture"] = holders(live)
        if number == -peak[1]:
            result["at_peak"] = holders(live)
            result["peak_is_at"] = place_of(event["frames"])


def write():
    if steps:
        replay()
    with open(result_path, "w") as file:
        json.dump(result, file, indent=1)


torch.cuda.init()
torch.cuda.set_device(0)
torch.cuda.memory._record_memory_history(max_entries=3_000_000, stacks="python")

import megatron.training.training as training

train_step = training.train_step


def measured_step(*args, **kwargs):
    step = {"before": torch.cuda.max_memory_allocated()}
    torch.cuda.reset_peak_memory_stats()
    step["begin_us"] = time.time_ns() // 1000
    outcome = train_step(*args, **kwargs)
    step.update(end_us=time.time_ns() // 1000, end=torch.cuda.memory_allocated(),
                peak=torch.cuda.max_memory_allocated(), reserved=torch.cuda.max_memory_reserved())
    steps.append(step)
    if len(steps) == STEPS:
        write()
        os._exit(0)
    return outcome


make_loaders = training.build_train_valid_test_data_loaders


def loaders_of_any_stage(*args, **kwargs):
    """Stages in the middle read no data, and are told by rank 0 that there is some to train on."""
    loaders = make_loaders(*args, **kwargs)
    training.get_args().do_train = 1
    return loaders


training.train_step = measured_step
training.build_train_valid_test_data_loaders = loaders_of_any_stage
sys.argv = ["pretrain_gpt.py"] + sys.argv[3:]
try:
    runpy.run_path(os.path.join(checkout, "pretrain_gpt.py"), run_name="__main__")
    result["error"] = "it ended before step %d" % STEPS
except BaseException as error:
    traceback.print_exc()
    result["error"] = "%s: %s" % (type(error).__name__, error)
write()
os._exit(1)
