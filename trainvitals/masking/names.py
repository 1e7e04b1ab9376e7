"""Names that secrets stand under, by their words: ``hubToken``, ``db.password``, ``PGPASSWORD``, ``api: {key: …}``."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

MASK = "***"
#: ``{"name": "HF_TOKEN", "value": …}``: what names a secret and what holds it, in lower case.
NAME_MEMBERS = frozenset({"name", "key", "variable", "env", "header", "option", "field", "parameter"})
VALUE_MEMBERS = frozenset({"value", "val", "values", "default", "content", "data", "text"})

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
#: A name may be nested deeply; its ends tell most.
_MAX_NAME = 4_096
#: Below these words everything is masked, whatever its type.
_STRONG = frozenset(
    {
        "secret", "secrets", "password", "passwords", "passwd", "pwd", "passphrase", "credential", "credentials", "creds", "cred",
        "apikey", "apikeys", "privatekey", "accesskey", "secretkey", "hftoken", "authtoken", "accesstoken", "passcode", "kennwort",
        "passwort", "contrasena", "senha",
    }
)  # fmt: skip
#: The same with other words grown on: PGPASSWORD, OPENAIAPIKEY, mypassphrase.
_STRONG_PARTS = ("password", "passwd", "passphrase", "passwort", "secret", "apikey", "accesskey", "privatekey", "credential")
_STRONG_PAIRS = frozenset({("pass", "word"), ("pass", "words"), ("pass", "phrase"), ("pass", "code"), ("access", "signature")})
#: These words mask text; a number, a switch or nothing is no secret (``hub_private_repo = True``).
_WEAK = frozenset(
    {"auth", "authorization", "authentication", "bearer", "private", "webhook", "dsn", "cookie", "cookies", "jwt", "sas", "otp", "fernet"}
)  # fmt: skip
_SERVICES = frozenset(
    {"wandb", "comet", "hf", "hub", "github", "gitlab", "azure", "gcp", "aws", "s3", "neptune", "openai", "anthropic", "mistral",
     "cohere", "slack", "datadog", "sentry", "swanlab", "clearml", "mlflow", "huggingface", "replicate", "gemini"}
)  # fmt: skip
_KEY_OF = _SERVICES | {
    "api", "access", "secret", "private", "ssh", "rsa", "encryption", "signing", "account", "license", "auth", "storage", "service",
    "deploy", "shared", "master", "subscription", "client", "app", "gpg", "pgp",
}  # fmt: skip
#: Keys of the attention, by the word behind: ``shared_key_value_states``.
_ATTENTION = frozenset(
    {"value", "values", "query", "heads", "head", "norm", "proj", "projection", "padding", "states", "cache", "dim"}
)
#: Tokens of a vocabulary or of a router, which are no secrets: the word before, the word behind.
_VOCABULARY = frozenset(
    {"pad", "eos", "bos", "unk", "sep", "cls", "mask", "eod", "image", "audio", "video", "prefix", "suffix", "middle", "end", "start",
     "special", "vocab", "per", "by", "next", "multi", "boi", "eoi", "think", "padding", "stop", "newline"}
)  # fmt: skip
_ROUTING = frozenset(
    {"dispatcher", "drop", "dropping", "dropout", "level", "mixing", "mixer", "shift", "embedding", "embeddings", "ids", "type", "types",
     "order", "shuffle", "permutation", "permute", "loss", "dispatch", "classification", "merging", "pruning", "weight", "weights"}
)  # fmt: skip
#: Grown on to ``token`` without a mark: ``eostoken`` is one of the vocabulary, ``wandbtoken`` is none.
_GROWN_ON = _VOCABULARY | {"sub", "de", "pre", "num", "max", "min", "n", "soft", "non", "un", "byte", "first", "last", "text"}
#: ``forward_pass`` and ``low_pass`` are no passwords.
_PASSES = frozenset(
    {"forward", "backward", "fwd", "bwd", "first", "second", "third", "one", "two", "single", "multi", "low", "high", "band", "all",
     "by", "num", "number", "n", "per", "each", "last", "final", "max", "min", "eval", "train", "inference", "test", "validation"}
)  # fmt: skip
#: Nothing but its length tells it from a commit.
_WANDB_KEY = re.compile(r"[0-9a-f]{40}", re.ASCII)
#: Large and small letters with digits between them: no word, no path, no name of a model.
_OPAQUE = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]{0,400}[A-Z])(?=[A-Za-z0-9]{0,400}[a-z])(?=[A-Za-z]{0,400}[0-9]+[A-Za-z]{1,400}[0-9])"
    r"[A-Za-z0-9]{16,400}",
    re.ASCII,
)


def is_secret_name(path: str, value: object = "") -> bool:
    """Whether what stands under this (dotted) name is to be masked. Numbers, switches and None only under the surest names."""
    if value is None or isinstance(value, bool):
        return False
    if len(path) > _MAX_NAME:
        path = f"{path[: _MAX_NAME // 2]}.{path[-_MAX_NAME // 2 :]}"
    parts = [words for segment in path.split(".") if segment and not segment.isdigit() and (words := _words(segment))]
    is_text = not isinstance(value, (int, float))
    is_about_keys = False
    before: tuple[str, ...] = ()
    for number, words in enumerate(parts):
        if _is_strong(words):
            return True
        if isinstance(value, str) and "wandb" in words and _WANDB_KEY.fullmatch(value):
            return True
        if is_text:
            is_leaf = number == len(parts) - 1
            if _is_weak(words) or _is_token(words, is_leaf=is_leaf) or _is_nested_key(before, words):
                return True
            is_about_keys = (
                is_about_keys or not _KEYS.isdisjoint(words) or (is_leaf and len(words) == 1 and words[0] in _SERVICES)
            )
        before = words
    return is_about_keys and isinstance(value, str) and _OPAQUE.search(value) is not None


_KEYS = frozenset({"token", "tokens", "key", "keys", "pass", "pw"})


def is_surely_secret(name: str) -> bool:
    """Whether the name alone tells it, so that a word of everyday language beside it is a secret too."""
    return any(
        _is_strong(words) or not {"authorization", "bearer", "cookie", "cookies", "dsn"}.isdisjoint(words)
        for segment in name[:_MAX_NAME].split(".")
        if (words := _words(segment))
    )


@lru_cache(maxsize=8_192)
def _words(segment: str) -> tuple[str, ...]:
    if not segment.isascii():  # full-width letters, accents, and marks that cannot be seen
        segment = "".join(letter for letter in unicodedata.normalize("NFKD", segment[:_MAX_NAME]) if letter.isascii())
    return tuple(word.lower() for word in _WORD.findall(segment))


@lru_cache(maxsize=8_192)
def _is_strong(words: tuple[str, ...]) -> bool:
    for word in words:
        if word in _STRONG or word.endswith("pwd") or any(part in word for part in _STRONG_PARTS):
            return True
        if word.endswith("key") and word[:-3] in _KEY_OF:
            return True
    return any(
        (first in _KEY_OF and second in ("key", "keys") and behind not in _ATTENTION) or (first, second) in _STRONG_PAIRS
        for (first, second), behind in zip(itertools.pairwise(words), (*words[2:], ""), strict=False)
    )


def _is_weak(words: Sequence[str]) -> bool:
    if not _WEAK.isdisjoint(words):
        return True
    if ("connection" in words or "conn" in words) and ("string" in words or "str" in words):
        return True
    if words[-1] == "pw":
        return True
    return words[-1] == "pass" and (len(words) == 1 or words[-2] not in _PASSES)


def _is_nested_key(before: Sequence[str], words: Sequence[str]) -> bool:
    """``api: {key: …}`` and ``keys: {openai: …}``."""
    if not before:
        return False
    if tuple(words) in (("key",), ("keys",)):
        return before[-1] in _KEY_OF
    return tuple(before) in (("key",), ("keys",)) and not _SERVICES.isdisjoint(words)


def _is_token(words: Sequence[str], *, is_leaf: bool) -> bool:
    for at, word in enumerate(words):
        if word not in ("token", "tokens"):
            if word.endswith("token") and word[:-5] not in _GROWN_ON:
                return True
            continue
        before = words[at - 1] if at else ""
        behind = words[at + 1] if at + 1 < len(words) else ""
        if before in _VOCABULARY or behind in _ROUTING:
            continue
        if word == "tokens":
            if before in ("api", "access", "auth", "hub", "hf", "bearer"):
                return True
        elif is_leaf or len(words) == 1:
            return True
    return False
