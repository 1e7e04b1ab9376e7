"""Secrets out of what is written down: by the name that they stand under, and by the shape that well-known tokens have.

In doubt a text is masked: a comparison that misses one changed key costs less than a token in a shared file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

MASK = "***"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MAX_NAME = 300
#: Below these words everything is masked, whatever its type.
_STRONG = frozenset(
    {
        "secret", "secrets", "password", "passwords", "passwd", "pwd", "passphrase", "credential", "credentials", "apikey", "apikeys",
        "privatekey", "accesskey", "secretkey", "hftoken", "authtoken", "accesstoken",
    }
)  # fmt: skip
#: These words mask text; a number, a switch or nothing is no secret (``hub_private_repo = True``).
_WEAK = frozenset({"auth", "authorization", "authentication", "bearer", "private", "webhook", "dsn", "cookie", "cookies", "jwt"})
_KEY_OF = frozenset(
    {
        "api", "access", "secret", "private", "ssh", "encryption", "signing", "account", "license", "auth", "wandb", "storage",
        "service", "comet", "hf", "hub", "github", "azure", "gcp", "s3", "deploy", "neptune", "openai", "anthropic", "shared", "master", "subscription",
    }
)  # fmt: skip
#: Tokens of a vocabulary or of a router, which are no secrets: the word before, the word behind.
_VOCABULARY = frozenset(
    {"pad", "eos", "bos", "unk", "sep", "cls", "mask", "eod", "image", "audio", "video", "prefix", "suffix", "middle", "end", "start",
     "special", "vocab", "per", "by", "next", "multi", "boi", "eoi", "think", "padding", "stop", "newline"}
)  # fmt: skip
_ROUTING = frozenset(
    {"dispatcher", "drop", "dropping", "dropout", "level", "mixing", "mixer", "shift", "embedding", "embeddings", "ids", "type", "types",
     "order", "shuffle", "permutation", "permute", "loss", "dispatch", "classification", "merging", "pruning", "weight", "weights"}
)  # fmt: skip

#: Nothing but its length tells it from a commit.
_WANDB_KEY = re.compile(r"[0-9a-f]{40}", re.ASCII)
_SHAPES = re.compile(
    r"""
    (?<![A-Za-z0-9]) (?:
      hf_[A-Za-z0-9]{16,200}
    | api_org_[A-Za-z0-9]{16,200}
    | sk-[A-Za-z0-9_-]{16,300}
    | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
    | gh[pousr]_[A-Za-z0-9]{20,300}
    | github_pat_[A-Za-z0-9_]{20,300}
    | glpat-[A-Za-z0-9_.-]{16,300}
    | xox[a-z]-[A-Za-z0-9-]{10,300}
    | xapp-[A-Za-z0-9-]{10,300}
    | AIza[A-Za-z0-9_-]{30,60}
    | ya29\.[A-Za-z0-9_-]{20,400}
    | nvapi-[A-Za-z0-9_-]{20,300}
    | r8_[A-Za-z0-9]{20,100}
    | npm_[A-Za-z0-9]{20,100}
    | pypi-[A-Za-z0-9_-]{20,400}
    | dop_v1_[a-f0-9]{32,100}
    | wandb_v1_[A-Za-z0-9_-]{16,200}
    | SG\.[A-Za-z0-9_-]{16,100}\.[A-Za-z0-9_-]{16,100}
    | eyJ[A-Za-z0-9_-]{8,400}\.[A-Za-z0-9_-]{8,8000}(?:\.[A-Za-z0-9_-]{0,4000})?
    | hooks\.slack\.com/services/[A-Za-z0-9/_-]{8,200}
    ) | -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----[^-]{0,20000}(?:-----END[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----)?
    """,
    re.VERBOSE | re.ASCII,
)
_URL_USER = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s@'\"]{1,500}@")
_BEARER = re.compile(r"\b(Bearer\s{1,3}|Basic\s{1,3}(?=[A-Za-z0-9+/=]{20}))[A-Za-z0-9._~+/=-]{8,4000}", re.ASCII)
_OPTION = re.compile(
    r"(?i)(--?[\w-]{0,60}(?:token|password|passwd|secret|api[_-]key|access[_-]key)[ \t]{1,3})[^\s-]\S{0,4000}", re.ASCII
)
_ASSIGNED = re.compile(
    r"""(?ix)
    ( (?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?key|private[_-]?key|[_-]token|\btoken
        |[?&](?:sig|signature|key|x-amz-[a-z-]{1,30}))
      ["']?\s{0,3} [=:] \s{0,3} ["']? )
    [^\s"',;&\]})]{1,4000}
    """,
    re.ASCII,
)


def is_secret_name(path: str, value: object = "") -> bool:
    """Whether what stands under this (dotted) name is to be masked. Numbers, switches and None only under the surest names."""
    if value is None or isinstance(value, bool):
        return False
    segments = [segment for segment in path[:_MAX_NAME].split(".") if segment and not segment.isdigit()]
    if not segments:
        return False
    is_text = not isinstance(value, (int, float))
    for number, segment in enumerate(segments):
        words = [word.lower() for word in _WORD.findall(segment)]
        if any(word in _STRONG for word in words):
            return True
        if any(first in _KEY_OF and second in ("key", "keys") for first, second in itertools.pairwise(words)):
            return True
        if isinstance(value, str) and "wandb" in words and _WANDB_KEY.fullmatch(value):
            return True
        if is_text and "connection" in words and "string" in words:
            return True
        if is_text and (any(word in _WEAK for word in words) or _is_token(words, is_leaf=number == len(segments) - 1)):
            return True
    return False


def _is_token(words: Sequence[str], *, is_leaf: bool) -> bool:
    for at, word in enumerate(words):
        if word not in ("token", "tokens"):
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


def mask_text(text: str) -> str:
    """The text with everything that looks like a token, a key or a password replaced by ``***``."""
    masked = _SHAPES.sub(MASK, text)
    if "@" in masked:
        masked = _URL_USER.sub(rf"\1{MASK}@", masked)
    masked = _BEARER.sub(rf"\1{MASK}", masked)
    if "--" in masked:
        masked = _OPTION.sub(rf"\1{MASK}", masked)
    return _ASSIGNED.sub(rf"\1{MASK}", masked)


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """A command line: ``--hub-token X``, ``--hub-token=X`` and ``wandb.api_key=X`` are masked, and every token by its shape."""
    masked: list[str] = []
    hides_next = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        option = name.lstrip("-+").replace("-", "_")
        if equals and is_secret_name(option, value):
            masked.append(f"{name}={MASK}")
            hides_next = False
        elif hides_next and not argument.startswith("--"):
            masked.append(MASK)
            hides_next = False
        else:
            masked.append(mask_text(argument))
            hides_next = name.startswith("-") and not equals and is_secret_name(option)
    return masked
