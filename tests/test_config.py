"""Settings: every refusal in one line, every config back from its own TOML."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pisces import config as cfg
from pisces import latencies
from pisces.config import Config, check, load, parse, to_toml
from pisces.errors import ConfigError


def refusal(text: str, *changes: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse(text, changes)
    return str(error.value)


# --- reading --------------------------------------------------------------------------------------


def test_nothing_given_is_every_default() -> None:
    config = parse("")
    assert config == Config()
    assert (config.protocol, config.clients.count, config.clients.concurrency) == (
        "pisces",
        100,
        20,
    )
    assert config.latency == latencies.Zipf(a=1.2, min_s=15.0, max_s=180.0)


def test_tables_and_keys_are_read() -> None:
    config = parse(
        """
        protocol = "fedbuff"
        [clients]
        count = 30
        [latency]
        kind = "constant"
        seconds = 4
        [protocols.fedbuff]
        buffer_size = 5
        """
    )
    assert (config.protocol, config.clients.count) == ("fedbuff", 30)
    assert config.latency == latencies.ConstantLatency(seconds=4.0)
    assert config.protocols == {"fedbuff": {"buffer_size": 5}}


def test_a_whole_number_is_a_fine_fraction() -> None:
    config = parse("[train]\nlearning_rate = 1")
    assert config.train.learning_rate == 1.0


def test_a_file_is_named_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[clients]\ncount = 0\n")
    with pytest.raises(ConfigError, match=r"run\.toml: clients\.count: must be greater"):
        load(path)


def test_changes_go_on_top_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("seed = 3\n[clients]\ncount = 50\n")
    config = load(path, ["clients.count=60"])
    assert (config.seed, config.clients.count) == (3, 60)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.toml: cannot read the config file"):
        load(tmp_path / "run.toml")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"run\.toml: not TOML"):
        load(path)


def test_latency_is_zipf_unless_said() -> None:
    assert parse("[latency]\nmin_s = 5.0").latency == latencies.Zipf(min_s=5.0)


def test_no_limit_is_infinity() -> None:
    config = parse("[stop]\ntime_s = inf\nversions = 3\n[evaluate]\nevery_s = inf")
    assert (config.stop.time_s, config.evaluate.every_s) == (math.inf, math.inf)
    assert parse(to_toml(config)) == config


# --- refusals -------------------------------------------------------------------------------------

REFUSALS = {
    "not TOML": ("a = = 5", "config: not TOML: "),
    "misspelt": ("[clients]\ncuont = 5", "clients.cuont: unknown key; did you mean clients.count?"),
    "misspelt at the top": ("protocl = 'x'", "protocl: unknown key; did you mean protocol?"),
    "misspelt table": ("[cleints]\ncount = 5", "cleints: unknown key; did you mean clients?"),
    "wrong table": (
        "[train]\nconcurrency = 5",
        "train.concurrency: unknown key; did you mean clients.concurrency?",
    ),
    "outside its table": ("learning_rate = 0.1", "did you mean train.learning_rate?"),
    "no such thing": ("[clients]\nxyzzy = 5", "clients.xyzzy: unknown key"),
    "word for a number": (
        "[clients]\ncount = 'many'",
        "clients.count: must be a valid integer, not 'many'",
    ),
    "fraction": ("[clients]\ncount = 2.5", "clients.count: must be a valid integer, not 2.5"),
    "truth for a number": (
        "[train]\nmomentum = true",
        "train.momentum: must be a valid number, not True",
    ),
    "number for a word": ("[data]\ndataset = 5", "data.dataset: must be a valid string, not 5"),
    "word for a list": (
        "[record]\ntrackers = 'csv'",
        "record.trackers: must be a list, such as [\"csv\"], not 'csv'",
    ),
    "very long word for a list": (
        f"[record]\ntrackers = '{'y' * 2000}'",
        "record.trackers: must be a list, not 'yyyyyyyyyyyy...yyyyyyyyyyyyy'",
    ),
    "number for a list": ("[record]\ntrackers = 5", "record.trackers: must be a list, not 5"),
    "number for a table": ("clients = 5", "clients: must be a table"),
    "list in a list": (
        "[model]\nhidden = [[64]]",
        "model.hidden: must be a valid integer, not [64]",
    ),
    "not finite": (
        "[train]\nlearning_rate = nan",
        "train.learning_rate: must be a finite number, not nan",
    ),
    "endless": ("[stop]\ntime_s = inf", "stop: the run would never end: set time_s, versions or"),
    "below its least": ("seed = -1", "seed: must be greater than or equal to 0, not -1"),
    "more at once than there are": (
        "[clients]\ncount = 5\nconcurrency = 6",
        "clients.concurrency must be at most clients.count = 5, not 6",
    ),
    "begins with more than there may be": (
        "[clients]\ncount = 5\nconcurrency = 2\n[network]\nat_least = 6",
        "network.at_least must be at most clients.count = 5, not 6",
    ),
    "negative latency": (
        "[latency]\nkind = 'zipf'\nmin_s = -1.0",
        "latency.min_s: must be greater than 0, not -1.0",
    ),
    "no latency": (
        "[latency]\nkind = 'constant'\nseconds = 0",
        "latency.seconds: must be greater than 0, not 0",
    ),
    "latency of no kind": (
        "[latency]\nkind = 'z'",
        "latency.kind: must be one of zipf, constant, uniform, lognormal, compute, trace, not 'z'",
    ),
    "latencies upside down": (
        "[latency]\nkind = 'uniform'\nmin_s = 50.0\nmax_s = 10.0",
        "latency.min_s must be at most latency.max_s = 10.0, not 50.0",
    ),
    "latency of another kind": (
        "[latency]\nkind = 'constant'\nmin_s = 5.0",
        "latency.min_s: not a key of kind 'constant'",
    ),
    "latency trace without a file": (
        "[latency]\nkind = 'trace'",
        "latency.path: this key is needed",
    ),
    "availability trace without a file": (
        "[availability]\nkind = 'trace'",
        "availability: path is needed for kind 'trace': name a CSV or JSON file",
    ),
    "availability of no kind": (
        "[availability]\nkind = 'often'",
        "availability.kind: must be 'always', 'markov', 'diurnal' or 'trace', not 'often'",
    ),
    "optimizer": (
        "[train]\noptimizer = 'rmsprop'",
        "train.optimizer: must be 'sgd', 'adam' or 'adamw', not 'rmsprop'",
    ),
    "no share": (
        "[failures]\ncrash = 1.5",
        "failures.crash: must be less than or equal to 1, not 1.5",
    ),
    "redrawn and corrupted": (
        "[data]\nredraw = true\ncorrupted = 0.1",
        "data: redraw needs corrupted = 0: every client draws from all samples",
    ),
    "limits of nothing": (
        "[limits]\nmax_norm = 0",
        "limits.max_norm: must be greater than 0, not 0",
    ),
    "hostile clients that do nothing": (
        "[hostile]\nshare = 0.2",
        "hostile: share = 0.2 of the clients would do nothing hostile: set labels, loss",
    ),
    "hostile without end": (
        "[hostile]\nshare = 0.2\ntimes = inf",
        "hostile.times: must be a finite number, not inf",
    ),
    "hostile in no known way": (
        "[hostile]\nloss = 'huge'",
        "hostile.loss: must be 'own', 'high', 'low' or 'same', not 'huge'",
    ),
    "hostile and corrupted": (
        "[data]\ncorrupted = 0.1\n[hostile]\nshare = 0.2\nlabels = 'shifted'",
        "hostile.labels = 'shifted' needs data.corrupted left out, not 0.1: leave out one",
    ),
    "hostile and redrawn": (
        "[data]\nredraw = true\n[hostile]\nshare = 0.2\nlabels = 'random'",
        "hostile.labels = 'random' needs data.redraw left out, not True: leave out one",
    ),
    "redrawn natural clients": (
        "[data]\nredraw = true\npartition = 'natural'",
        "data: redraw draws from a mixture of labels, which natural clients do not have: use",
    ),
    "redrawn and shared": (
        "[data]\nredraw = true\noverlap = true",
        "data: redraw lets clients share samples by itself: leave overlap out",
    ),
    "poor clients of our making": (
        "[data]\npartition = 'iid'\nmin_samples = 5",
        "data: min_samples = 5 leaves natural clients out, and partition = 'iid' has none: use",
    ),
    "rich clients of our making": (
        "[data]\npartition = 'iid'\nmax_samples = 5",
        "data: max_samples = 5 is for natural clients, and partition = 'iid' has none: use",
    ),
    "clients cut to nothing": (
        "[data]\npartition = 'natural'\nmax_samples = 0",
        "data.max_samples: must be greater than or equal to 1, not 0",
    ),
    "no words": (
        "[data]\nvocabulary = 0",
        "data.vocabulary: must be greater than or equal to 1, not 0",
    ),
    "size of albert": (
        "[model]\nsize = 'large'",
        "model.size: must be 'small' or 'base', not 'large'",
    ),
    "settings that are no table": (
        "[protocols]\npisces = 5",
        "protocols.pisces: must be a table",
    ),
}


@pytest.mark.parametrize(("text", "says"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refusal_is_one_line_with_key_rule_and_value(text: str, says: str) -> None:
    message = refusal(text)
    assert message.startswith("config: ")
    assert says in message
    assert len(message.splitlines()) == 1


def test_a_run_must_end() -> None:
    with pytest.raises(ConfigError, match="stop: the run would never end: set time_s, versions or"):
        check({"stop": {"time_s": None}})
    assert check({"stop": {"time_s": None, "updates": 9}}).stop.updates == 9


def test_each_problem_has_its_line() -> None:
    lines = refusal("[clients]\ncount = 0\nconcurrency = 'x'\n[train]\nepoch = 3").splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "clients.count",
        "clients.concurrency",
        "train.epoch",
    ]
    assert lines[2].endswith("did you mean train.epochs?")


@pytest.mark.parametrize("sizes", ["'rich'", "[0, 5]", "[1.5]"])
def test_wrong_sizes_name_their_key(sizes: str) -> None:
    # Either of two things would have been right: a line for each.
    for line in refusal(f"[data]\nsizes = {sizes}").splitlines():
        assert line.startswith("config: data.sizes: must be ")


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 2  # type: ignore[misc]


# --- changes from the command line ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("model.hidden=[32, 16]", [32, 16]),
        ("model.hidden=[]", []),
        ("model.name=lenet5", "lenet5"),
        ('model.name="lenet5"', "lenet5"),
        ("model.name=a=b", "a=b"),
        ("model.name=two words", "two words"),
        ("clients.count=50", 50),
        (" clients.count = 1_000 ", 1000),
        ("train.learning_rate=1e-3", 0.001),
        ("train.learning_rate=2", 2.0),
        ("data.overlap=true", True),
        ("data.sizes=lognormal", "lognormal"),
        ("data.sizes=[1, 2, 3]", [1, 2, 3]),
        ("seed=7", 7),
    ],
)
def test_values_are_numbers_words_lists_and_truths(change: str, value: Any) -> None:
    config: Any = parse("", [change])
    for name in change.partition("=")[0].strip().split("."):
        config = getattr(config, name)
    assert config == value
    assert type(config) is type(value)


def test_none_takes_a_value_away() -> None:
    text = "[data]\nsize = 12\n[clients]\ndeadline_s = 5\n[protocols.pisces]\nfull_share = 0.5"
    keys = ("data.size", "clients.deadline_s", "stop.time_s", "protocols.pisces.full_share")
    config = parse(text, [*(f"{key}=none" for key in keys), "stop.versions=3"])
    assert (config.data.size, config.clients.deadline_s) == (None, None)
    assert config.stop.time_s == math.inf  # no limit
    assert config.protocols == {"pisces": {"full_share": None}}
    assert parse(to_toml(config)).protocols == {"pisces": {}}


def test_none_is_no_value_where_there_must_be_one() -> None:
    assert refusal("", "clients.count=none") == (
        "config: clients.count: must be a valid integer, not none"
    )
    assert parse("", ['model.name="none"']).model.name == "none"  # in quotes it is a word


def test_settings_of_protocols_can_be_set() -> None:
    config = parse("", ["protocols.pisces.pace=strict", "protocols.pisces.staleness_bound=3"])
    assert config.protocols == {"pisces": {"pace": "strict", "staleness_bound": 3}}


def test_the_last_change_wins() -> None:
    assert parse("seed = 1", ["seed=2", "seed=3"]).seed == 3


@pytest.mark.parametrize("change", ["seed", "=5", "", "clients.=5"])
def test_a_change_without_key_or_value_is_refused(change: str) -> None:
    assert refusal("", change) == (
        f"--set takes key=value, such as clients.count=50, not {change!r}"
    )


def test_a_change_below_something_that_is_no_table_is_refused() -> None:
    message = refusal("[clients]\ncount = 5", "clients.count.x=1")
    assert message == "--set clients.count.x=1: count is not a table"


def test_a_misspelt_change_is_an_unknown_key() -> None:
    assert "did you mean train.epochs?" in refusal("", "train.epoch=3")


def test_a_word_where_a_number_belongs_is_refused() -> None:
    assert "clients.count: must be a valid integer, not 'fifty'" in refusal(
        "", "clients.count=fifty"
    )


# --- writing --------------------------------------------------------------------------------------


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


positive = st.floats(1e-6, 1e6)
LATENCIES = st.one_of(
    some(a=positive, min_s=st.floats(1e-6, 180.0), jitter=positive).map(
        lambda d: {"kind": "zipf", **d}
    ),
    some(seconds=positive).map(lambda d: {"kind": "constant", **d}),
    some(sigma=positive).map(lambda d: {"kind": "lognormal", **d}),
    st.just({"kind": "trace", "path": 'C:\\traces\\"my" phones.csv'}),
    st.just({"kind": "compute"}),
)
CONFIGS = some(
    protocol=st.sampled_from(["pisces", "fedbuff"]),
    seed=st.integers(0, 2**62),
    clients=some(count=st.integers(20, 10**6), deadline_s=positive),
    data=some(
        sizes=st.one_of(st.just("coupled"), st.lists(st.integers(1, 99), min_size=1, max_size=4)),
        overlap=st.booleans(),
        folder=st.text(max_size=9),
    ),
    model=some(hidden=st.lists(st.integers(1, 99), max_size=3)),
    train=some(learning_rate=positive, clip_norm=positive, device=st.text(max_size=5)),
    latency=LATENCIES,
    evaluate=some(every_versions=st.integers(1, 99)),
    stop=some(versions=st.integers(1, 99), target=st.floats(-1e9, 1.0)),
    protocols=st.dictionaries(
        st.sampled_from(["pisces", "fedbuff", "pisces-without-guard"]),
        st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(), st.text(max_size=4))),
    ),
)


@settings(max_examples=60, deadline=None)
@given(values=CONFIGS)
def test_a_config_comes_back_from_its_toml(values: dict[str, Any]) -> None:
    config = check(values)
    assert parse(to_toml(config)) == config


def test_every_default_is_spelled_out() -> None:
    text = to_toml(Config())
    for line in ("seed = 1", "concurrency = 20", 'kind = "zipf"', "time_s = 1000.0", "[train]"):
        assert line in text.splitlines()
    # A key without a value cannot be written: TOML has no word for nothing.
    assert "deadline_s" not in text


@pytest.mark.parametrize(
    "values",
    [{"stop": {"time_s": None, "versions": 5}}, {"evaluate": {"every_s": None}}],
    ids=["stop.time_s", "evaluate.every_s"],
)
def test_none_comes_back_too(values: dict[str, Any]) -> None:
    config = check(values)
    assert parse(to_toml(config)) == config


# --- what the documentation is made of ------------------------------------------------------------


def test_every_key_is_described() -> None:
    names = {table for table, _ in cfg.sections()}
    for table, section in cfg.sections():
        assert section.__doc__, table
        for name, field in section.model_fields.items():
            key = f"{table}.{name}".removeprefix(".")
            assert field.description or key in names or name == "kind", key


def test_all_keys_are_dotted() -> None:
    keys = set(cfg.all_keys())
    assert {"protocol", "clients.count", "latency.kind", "latency.bytes_per_s"} <= keys
    assert {"train.ray", "train.ray.address"} <= keys
    assert "count" not in keys


def test_how_patient_a_server_is_does_not_change_what_a_run_is() -> None:
    patient = cfg.parse("[network]\npatience_s = 600.0\nencoding = 'float16'")
    assert patient.network.patience_s == 600.0
    assert cfg.described(patient, cfg.FREE) == cfg.described(cfg.Config(), cfg.FREE)
    with pytest.raises(ConfigError, match=r"network\.patience_s: must be greater than 0"):
        cfg.parse("[network]\npatience_s = 0.0")
