"""The configuration: whether it loads, whom it leads to, and whether they let us in.

That a provider answers does not mean that a model is configured, nor the other way round: both are said apart.
"""

from __future__ import annotations

from typing import Any

from bubbles import config, log
from bubbles.bus import is_running
from bubbles.config import file
from bubbles.errors import BubblesError, Misconfigured, TryAgain
from bubbles.kernel.clean import clean
from bubbles.programs.doctoring.finding import Finding, Findings, Patient, fail, note, ok, warn
from bubbles.programs.doctoring.installed import lacking, needed
from bubbles.programs.modelling.keys import KEYED
from bubbles.providers import EMBEDDED, REGISTRY
from bubbles.providers import open as opened
from bubbles.providers.route import is_set_up, route

_LIST_S = 15.0  # modeld asks all providers side by side, five seconds each
_SHOWN = 5  # names of models in a sentence


def configuration(patient: Patient) -> Findings:
    """Does every setting load, of the sessions too?"""
    home = patient.home
    if not home.config.exists():
        yield warn(f"there is no {home.config}: everything stands at its default, and no model is set up", "bubbles onboard")
    settings = config.load(home)
    for warning in settings.warnings:
        yield warn(warning, f"mend it in {home.config}" if str(home.config) in warning else "")
    broken = list(_sessions(patient, settings))
    yield from broken
    if home.config.exists() and not settings.warnings:
        yield ok(f"{home.config} loads whole")


def _sessions(patient: Patient, settings: config.Settings) -> Findings:
    for path in sorted(patient.home.sessions.glob("*/config.json")):
        try:
            for warning in config.session_settings(settings, file.read(path), str(path)).warnings:
                yield warn(warning)
        except Misconfigured as error:
            yield fail(f"the session {path.parent.name} cannot be used: {error.text}", error.remedy or f"mend {path}")


def model(patient: Patient) -> Findings:
    """Is it said which model is asked?"""
    settings = _settings(patient)
    if settings is None:
        return
    try:
        found = route(settings)
    except Misconfigured as error:
        yield fail(f"no model can be asked: {error.text}", error.remedy)
        return
    if REGISTRY[found.provider].implementation is None:
        yield fail(f"{found.model} would be asked of {found.provider}, which is not built yet", "bubbles onboard")
        return
    why = _refused(patient, settings, found.provider)
    if why is not None and found.provider not in _known_to_modeld(patient):
        yield fail(f"no model can be asked: {why.text}", why.remedy)
        return
    yield ok(f"{found.model} is asked of {found.provider}: {found.why}")


def _refused(patient: Patient, settings: config.Settings, name: str) -> Misconfigured | None:
    """Why a provider cannot be worked with as it is set up: it has no address."""
    try:
        opened(name, settings.providers, patient.home)
    except Misconfigured as error:
        return error
    return None


def _known_to_modeld(patient: Patient) -> set[str]:
    """The providers that are set up for a modeld that runs: it may have been started with other variables than this program."""
    if is_running(patient.home, "modeld") is None:
        return set()
    try:
        listed, failed, _ = _by_modeld(patient)
    except BubblesError:  # `daemons` tells
        return set()
    return {*listed, *failed}


def providers(patient: Patient) -> Findings:
    """Does each provider that is set up let us in? Of each the list of models is asked for; no model is."""
    settings = _settings(patient)
    if settings is None:
        return
    default = _default(settings)
    names = [name for name, entry in REGISTRY.items() if entry.implementation and (is_set_up(entry, settings) or name == default[0])]
    if EMBEDDED in names:
        yield from filter(None, (lacking(name, least) for name, least in needed("local")))
    listed, failed, who = _listed(patient, settings, names)
    for name in names:
        if name not in {*listed, *failed} and _refused(patient, settings, name):
            continue  # `model` tells
        if name in failed:
            yield _out(name, failed[name], who, default)
        elif name in listed:
            yield _in(settings, name, listed[name], who, default)
        elif not is_set_up(REGISTRY[name], settings):  # one that is asked by default where it usually is; modeld does not list it
            yield _at_its_usual_place(patient, settings, name, default)
        else:
            yield warn(f"{name} is set up, and {who} does not know of it yet", "see `restart` below")
    if not names:
        yield note("no provider is set up", "bubbles onboard")


def _listed(patient: Patient, settings: config.Settings, names: list[str]) -> tuple[dict[str, list[str]], dict[str, dict[str, str]], str]:
    """(models by provider, what kept one from telling, who asked). Where modeld runs it is asked: it alone may have the keys."""
    if is_running(patient.home, "modeld") is not None:
        try:
            told = _by_modeld(patient)
            return _by_modeld(patient) if told[1] else told  # one may only have been too slow
        except BubblesError:
            pass  # `daemons` tells
    listed: dict[str, list[str]] = {}
    failed: dict[str, dict[str, str]] = {}
    for name in (name for name in names if _refused(patient, settings, name) is None):
        try:
            listed[name] = _asked(patient, settings, name)
        except BubblesError as error:
            failed[name] = {"text": error.text, "remedy": error.remedy}
    return listed, failed, "this program"


def _at_its_usual_place(patient: Patient, settings: config.Settings, name: str, default: tuple[str, str]) -> Finding:
    try:
        return _in(settings, name, _asked(patient, settings, name), "this program", default)
    except BubblesError as error:
        return _out(name, {"text": error.text, "remedy": error.remedy}, "this program", default)


def _asked(patient: Patient, settings: config.Settings, name: str) -> list[str]:
    """The models of a provider, asked a second time where it only was too slow. Raises BubblesError."""
    from bubbles.programs import trial

    try:
        return trial.models(patient.home, settings, name)
    except TryAgain:
        return trial.models(patient.home, settings, name)


def _by_modeld(patient: Patient) -> tuple[dict[str, list[str]], dict[str, dict[str, str]], str]:
    from bubbles.bus.dial import Dial

    with Dial(patient.home, "modeld", restart_s=0) as dial:
        told = dial.call("model.list", timeout_s=_LIST_S)[0]
    listed: dict[str, list[str]] = {}
    for each in told["models"]:
        listed.setdefault(each["provider"], []).append(each["model"])
    return listed, {each["provider"]: each for each in told["failed"]}, "modeld"


def _out(name: str, why: dict[str, Any], who: str, default: tuple[str, str]) -> Finding:
    """One that does not let us in: wrong where it is the one that is asked by default."""
    text = clean(log.struck(str(why.get("text", ""))))
    said = f"{text}" if text.startswith(name) else f"{name}: {text}"
    found = fail if name == default[0] else warn
    asked = who if who == "modeld" else f"{who}; modeld, which may have been handed another key, does not run"
    return found(f"{said} (asked by {asked})", str(why.get("remedy") or "") or "bubbles onboard")


def _in(settings: config.Settings, name: str, models: list[str], who: str, default: tuple[str, str]) -> Finding:
    if name in KEYED:  # what it has is asked of nobody
        return ok(f"{name} has a key; whether it is let in is seen by: bubbles models test{'' if name == default[0] else f' {name}/MODEL'}")
    wanted = default[1] if name == default[0] else ""
    shown = ", ".join(models[:_SHOWN]) + (f" and {len(models) - _SHOWN} more" if len(models) > _SHOWN else "")
    if wanted and models and wanted not in models and name != EMBEDDED:
        return warn(f"{name} answers and does not list the model {wanted!r}: it has {shown}", "set agents.defaults.model to one that it has")
    return ok(f"{name} answers, as {who} asks it: {shown or 'it lists no models'}")


def answer(patient: Patient) -> Findings:
    """Does the model answer a question?"""
    settings = _settings(patient) if patient.asks else None
    if settings is None:
        return
    from bubbles.programs import trial

    found = trial.ask(patient.home, settings)
    yield ok(f"{found.route.model} answered: {found.text or '(nothing but thoughts)'}")


def _settings(patient: Patient) -> config.Settings | None:
    """What is needed to ask a model; None where that does not load, which `config` tells."""
    try:
        settings = config.load(patient.home, "agents", "providers")
    except BubblesError:
        return None
    return settings


def _default(settings: config.Settings) -> tuple[str, str]:
    try:
        found = route(settings)
    except Misconfigured:
        return "", ""
    return found.provider, found.model
