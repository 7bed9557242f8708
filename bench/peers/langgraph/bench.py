"""LangGraph doing W3 on PostgreSQL: create_agent, HumanInTheLoopMiddleware and PostgresSaver, as their documents put
them together. Prints the same line as the other programs.

    bench.py W3 --secs S --path URL [--conc C]

One run: to the interrupt, checkpointed; then by its thread id alone: the pending interrupt is read, answered (Write
rejected, Bash approved), and the graph goes to its end. With --conc, so many threads share a pool of 16 connections.
"""
import argparse
import itertools
import json
import os
import resource
import threading
import time

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.types import Command
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

SYSTEM = "You are a build assistant."
PROMPT = "Read notes.txt, then write out.txt and run the build."
TURN = [
    ("c1", "Read", {"path": "notes.txt"}),
    ("c2", "Write", {"path": "out.txt", "content": "hello"}),
    ("c3", "Bash", {"command": "make build"}),
]
WARM_UP = 20
CONNECTIONS = 16


class Scripted(BaseChatModel):
    """The calls when nothing was answered yet, else the last word."""

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        record = records[current()]
        record["asked"] += 1
        if isinstance(messages[-1], HumanMessage):
            reply = AIMessage("", tool_calls=[dict(id=i, name=n, args=dict(a)) for i, n, a in TURN])
        else:
            record["seen"] = [m.tool_call_id for m in messages if isinstance(m, ToolMessage)]
            reply = AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=reply)])


# LangGraph runs tools on threads of its own; the run they belong to is known from the configuration of the graph.
records = {}


def current():
    from langgraph.config import get_config

    return get_config()["configurable"]["thread_id"]


def ran(name):
    record = records[current()]
    record["tools"].append(name)
    if name == "Bash":
        record["bash_at"] = time.perf_counter()


@tool
def Read(path: str) -> str:
    """Read tool"""
    ran("Read")
    return "contents of notes.txt"


@tool
def Write(path: str, content: str) -> str:
    """Write tool"""
    ran("Write")
    return "written"


@tool
def Bash(command: str) -> str:
    """Bash tool"""
    ran("Bash")
    return "build ok"


def one(agent, thread, wrong):
    """One whole run; the milliseconds from the decision to the entry into Bash."""
    config = {"configurable": {"thread_id": thread}}
    record = records[thread] = {"tools": [], "asked": 0, "seen": None, "bash_at": None}
    out = agent.invoke({"messages": [{"role": "user", "content": PROMPT}]}, config)
    if "__interrupt__" not in out or {"Write", "Bash"} & set(record["tools"]):
        wrong("ran_before_decision", record)
    decided = time.perf_counter()
    pending = agent.get_state(config).interrupts
    answers = [
        {"type": "reject", "message": "not allowed by policy"} if r["name"] == "Write" else {"type": "approve"}
        for r in pending[0].value["action_requests"]
    ]
    out = agent.invoke(Command(resume={"decisions": answers}), config)
    del records[thread]
    if out["messages"][-1].content != "done":
        wrong("final", out["messages"][-1].content)
    for name, times in (("Read", 1), ("Write", 0), ("Bash", 1)):
        if record["tools"].count(name) != times:
            wrong(f"{name}_count", record["tools"])
    if record["asked"] != 2:
        wrong("model_calls", record["asked"])
    if record["seen"] != ["c1", "c2", "c3"]:
        wrong("result_order", record["seen"])
    return (record["bash_at"] - decided) * 1e3 if record["bash_at"] else None


def process_cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def server_cpu_s():
    """CPU seconds of the database's server with all its processes; BENCH_PG_PID names the first of them."""
    pid = os.environ.get("BENCH_PG_PID")
    ticks = 0
    for entry in os.listdir("/proc") if pid else ():
        try:
            fields = open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split() if entry.isdigit() else None
        except OSError:
            continue
        if fields and entry == pid:
            ticks += sum(map(int, fields[11:15]))
        elif fields and fields[1] == pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def percentile(values, share):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(len(values) * share))], 4) if values else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=["W3"])
    parser.add_argument("--secs", type=float, default=5.0)
    parser.add_argument("--path", required=True)
    parser.add_argument("--conc", type=int, default=1)
    arguments = parser.parse_args()

    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool = ConnectionPool(arguments.path, min_size=1, max_size=CONNECTIONS, kwargs=settings, open=True)
    with pool.connection() as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    saver = PostgresSaver(pool)
    saver.setup()
    gate = HumanInTheLoopMiddleware(interrupt_on={"Write": True, "Bash": True})
    agent = create_agent(
        Scripted(), tools=[Read, Write, Bash], system_prompt=SYSTEM, middleware=[gate], checkpointer=saver
    )

    deviations, samples, lock = {}, {}, threading.Lock()

    def wrong(kind, what):
        with lock:
            deviations[kind] = deviations.get(kind, 0) + 1
            samples[kind] = repr(what)[:300]

    numbers = itertools.count()
    for _ in range(WARM_UP):
        one(agent, f"run-{next(numbers)}", wrong)
    latency = []
    cpu, server, began = process_cpu_s(), server_cpu_s(), time.perf_counter()

    def lane():
        while time.perf_counter() - began < arguments.secs:
            ms = one(agent, f"run-{next(numbers)}", wrong)
            if ms is not None:
                latency.append(ms)

    lanes = [threading.Thread(target=lane) for _ in range(arguments.conc)]
    for each in lanes:
        each.start()
    for each in lanes:
        each.join()
    wall_s, cpu_s = time.perf_counter() - began, process_cpu_s() - cpu
    server_s, runs = server_cpu_s() - server, len(latency)
    line = {
        "peer": "langgraph",
        "w": "W3",
        "store": "postgres",
        "conc": arguments.conc,
        "runs": runs,
        "wall_s": round(wall_s, 4),
        "cpu_s": round(cpu_s, 4),
        "runs_per_s": round(runs / wall_s, 4),
        "cpu_ms_per_run": round(1e3 * cpu_s / max(runs, 1), 4),
        "server_cpu_ms_per_run": round(1e3 * server_s / max(runs, 1), 4),
        "decide_to_tool_ms_p50": percentile(latency, 0.5),
        "decide_to_tool_ms_p99": percentile(latency, 0.99),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        # LangGraph answers the declined call before the others whatever their order: said, and no fault of the measurement.
        "known_deviations": {kind: n for kind, n in deviations.items() if kind == "result_order"},
        "deviations": {kind: n for kind, n in deviations.items() if kind != "result_order"},
    }
    if samples:
        line["deviation_samples"] = samples
    print(json.dumps(line))
    pool.close()


if __name__ == "__main__":
    main()
