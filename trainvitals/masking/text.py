"""Secrets in texts and command lines: tokens by their shape, values by the name in front of them, users of addresses.

Every pattern is bounded and takes time in proportion to the text, whatever stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trainvitals.masking.names import MASK, NAME_MEMBERS, VALUE_MEMBERS, is_secret_name, is_surely_secret

_SHAPES = re.compile(
    r"""
    (?<![A-Za-z0-9]) (?:
      hf_[A-Za-z0-9]{16,200}
    | api_org_[A-Za-z0-9]{16,200}
    | sk-[A-Za-z0-9_-]{16,300}
    | [srp]k_(?:live|test)_[A-Za-z0-9]{16,200}
    | (?:gsk_|xai-)[A-Za-z0-9]{20,200}
    | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])
    | gh[pousr]_[A-Za-z0-9]{20,300}
    | github_pat_[A-Za-z0-9_]{20,300}
    | gl(?:pat|dt|rt|ptt|soat|cbt|ft|imt|agent)-[A-Za-z0-9_.-]{16,300}
    | xox[a-z]-[A-Za-z0-9-]{10,300}
    | xapp-[A-Za-z0-9-]{10,300}
    | AIza[A-Za-z0-9_-]{30,60}
    | ya29\.[A-Za-z0-9_-]{20,400}
    | nvapi-[A-Za-z0-9_-]{20,300}
    | r8_[A-Za-z0-9]{20,100}
    | npm_[A-Za-z0-9]{20,100}
    | pypi-[A-Za-z0-9_-]{20,400}
    | dop_v1_[a-f0-9]{32,100}
    | dapi[a-f0-9]{32}(?![A-Za-z0-9])
    | dckr_pat_[A-Za-z0-9_-]{16,200}
    | wandb_v1_[A-Za-z0-9_-]{16,200}
    | AGE-SECRET-KEY-1[A-Z0-9]{30,100}
    | SG\.[A-Za-z0-9_-]{16,100}\.[A-Za-z0-9_-]{16,100}
    | eyJ[A-Za-z0-9_-]{8,400}\.[A-Za-z0-9_-]{8,8000}(?:\.[A-Za-z0-9_-]{0,4000})?
    | hooks\.slack\.com/services/[A-Za-z0-9/_-]{8,200}
    ) | -----BEGIN[ ][A-Z0-9 ]{0,60}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----(?:(?!-----END[ ])[\s\S]){0,20000}(?:-----END[ ][A-Z0-9 ]{0,80}-----)?
    """,
    re.VERBOSE | re.ASCII,
)
#: A token that the end of a text cut off.
_TORN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|api_org_|sk-|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|xapp-|nvapi-|wandb_v1_|npm_|pypi-|eyJ|AIza|A[KS]IA)"
    r"[A-Za-z0-9_.-]{2,400}\Z",
    re.ASCII,
)
_PEM_BEGIN, _PEM_END = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}PRIVATE KEY"), "-----END "
#: A password may hold slashes and at signs; what follows ``host:8080/`` is a path, which may hold an at sign as well.
_URL_PASSWORD = re.compile(
    r"\b(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<user>[^/\s:@'\"]{0,200}):(?P<word>[^\s'\"<>]{1,500})@", re.ASCII
)
_PORT_AND_PATH = re.compile(r"\d{1,5}[/?#]", re.ASCII)
_URL_USER = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s@'\"]{1,500}@")
_HOST_USER = re.compile(r"(?<![\w/@:.-])[\w.-]{1,60}:[^\s:@/'\"]{3,200}@(?=[\w.-]{1,200}:\d{2,5}\b)", re.ASCII)
_BEARER = re.compile(
    r"\b((?:Bearer\s{1,8}|(?i:bearer)\s{1,8}(?=[A-Za-z._~+/=-]{0,400}\d)|(?i:basic)\s{1,8}(?=[A-Za-z0-9+/=]{20})))[A-Za-z0-9._~+/=-]{8,4000}",
    re.ASCII,
)
_COMMANDS = re.compile(
    r"""(?x)
    ( \bsshpass\s{1,8}-p\s{0,8}
    | \bwandb\s{1,8}login\s{1,8}(?:--[\w-]{1,40}\s{1,8}){0,4}(?=[\w-]{20})
    | \blogin\s{1,8}\S{1,200}\s{1,8}password\s{1,8}
    | \bcurl(?:\s[^\n]{0,400}?)?\s(?:-u|--user|--proxy-user)[\s=]{0,8}(?=[^\s:]{0,200}:)
    | \bmysql\w{0,10}(?:\s[^\n]{0,400}?)?\s-p(?=[^\s-])
    ) (?:"[^"]{1,4000}"|'[^']{1,4000}'|\S{1,4000})
    """,
    re.ASCII,
)
_COMMAND_WORDS = ("sshpass", "wandb", "login", "curl", "mysql")

#: What may follow a name: ``=``, ``: ``, ``":"``, ``\":\"``, ``=>``.
_ASSIGNMENT = re.compile(r"(?<=[\w\]])(?:\\{0,3}[\"']|\]){0,2}\s{0,3}(?::=|=>|!?={1,3}|:)\s{0,3}", re.ASCII)
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_MAX_NAME = 200
#: ``--hub-token X``; a shell's line may go on behind a backslash.
_OPTION = re.compile(r"(?<![\w-])--?([A-Za-z][\w.-]{1,100})(?:[ \t]{0,16}\\?\r?\n[ \t]{0,16}|[ \t]{1,16})(?=\S)", re.ASCII)
_OPTION_LIKE = re.compile(r"--[a-z][a-z0-9_.-]{0,100}(?![A-Za-z0-9])", re.ASCII)
_ADDRESS_PARTS = re.compile(r"(?:sig|signature|key|code|sas|auth|x-(?:amz|goog)-[a-z-]{1,30})\Z", re.ASCII | re.IGNORECASE)
_VALUE = re.compile(
    r"""(?x)
    (?P<scheme>(?i:(?:bearer|basic|token|digest|apikey|negotiate)[ \t]{1,8}(?=[^\s,;]))?)
    (?: (?P<escaped>\\{1,3}["'])(?:[^"'\\]|\\(?!["'\\])){1,4000}
      | (?P<double>")(?:[^"\\]|\\.){1,4000}
      | (?P<single>')(?:[^'\\]|\\.){1,4000}
      | (?P<bare>(?:[^\s"',;&\])}]
          | [,;&](?![\s,;&]|\\?["']|[\w.-]{1,60}\s{0,2}[=:]|\Z)
          | [\])}](?![\s,;:\])}"']|\Z)){1,4000}) )
    """,
    re.ASCII | re.DOTALL,
)
_NOTHING = frozenset({"none", "null", "true", "false", "nil", "undefined", MASK})
_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:e[+-]?\d{1,4})?\Z", re.ASCII | re.IGNORECASE)
#: Every name of a secret holds one of these.
_HINTS = (
    "token", "pass", "pw", "secret", "key", "cred", "auth", "bearer", "private", "webhook", "dsn", "cookie", "jwt", "sas", "otp",
    "fernet", "sig", "conn", "code", "senha", "contrase", "kennwort", "x-amz", "x-goog",
)  # fmt: skip
_MAX_DEPTH = 20
#: Characters of values that are looked at for each character of a text. A text that wants more is made to be slow, or holds
#: names of secrets and nothing else: what is left of it is hidden.
_LOOKS_PER_CHARACTER = 8
_FREE_LOOKS = 4_000


def mask_text(text: str) -> str:
    """The text with everything that looks like a token, a key or a password replaced by ``***``."""
    masked = _SHAPES.sub(MASK, text)
    if "@" in masked:
        masked = _mask_users(masked)
    if any(word in masked for word in _COMMAND_WORDS):
        masked = _COMMANDS.sub(rf"\1{MASK}", masked)
    if not _is_hinted(masked):
        return masked
    masked = _BEARER.sub(rf"\1{MASK}", masked)
    if "=" in masked or ":" in masked:
        masked = _mask_values(masked, _ASSIGNMENT)
    return _mask_values(masked, _OPTION) if "-" in masked else masked


def mask_cut_text(text: str, limit: int) -> str:
    """``text`` masked and cut to ``limit`` characters; half of a token at its end is masked as well."""
    masked = mask_text(text[: limit + 4_000])
    return masked if len(masked) <= limit and len(text) < limit else _TORN.sub(MASK, masked[:limit])[:limit]


def mask_json(value: object, depth: int = _MAX_DEPTH, name: str = "") -> object:
    """The same JSON value with its texts masked, and what stands under the ``name`` of a secret; what is no text stays as it is."""
    if isinstance(value, str):
        return MASK if value and is_secret_name(name, value) else mask_text(value)
    if value is None or isinstance(value, (bool, int, float)):
        return MASK if value and is_secret_name(name, value) else value
    if depth <= 0 or not isinstance(value, (Mapping, list, tuple)):
        return f"<{type(value).__name__}>"
    if isinstance(value, Mapping):
        hidden = secret_members(value)
        return {key: MASK if key in hidden else mask_json(item, depth - 1, f"{name}.{key}") for key, item in value.items()}
    if is_secret_name(name, 0):
        return MASK
    if all(isinstance(item, (int, float)) for item in value):  # thousands of ranks
        return list(value)
    if len(value) == 2 and is_pair_of_secret(value[0], value[1]):
        return [value[0], MASK]
    if all(isinstance(item, str) for item in value) and not is_secret_name(name):
        return mask_arguments(value)
    return [mask_json(item, depth - 1, name) for item in value]


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """A command line, or any list of texts: ``--hub-token X``, ``--hub-token=X`` and ``wandb.api_key=X`` are masked, a private key
    line by line, a pair such as (``HF_TOKEN``, X), and every token by its shape."""
    if len(arguments) == 2 and not arguments[0].startswith("-") and is_pair_of_secret(*arguments):
        return [mask_text(arguments[0]), MASK]
    masked: list[str] = []
    option = ""
    is_in_key = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        named = name.lstrip("-+").replace("-", "_")
        if is_in_key:
            masked.append(MASK)
            is_in_key = _PEM_END not in argument
        elif _PEM_BEGIN.search(argument):
            masked.append(mask_text(argument))
            is_in_key = _PEM_END not in argument
        elif equals and " " not in name and is_secret_name(named, value):
            masked.append(f"{name}={MASK}")
            option = ""
        elif option and not _OPTION_LIKE.match(argument) and is_secret_name(option, _typed(argument)):
            masked.append(MASK)
            option = ""
        else:
            masked.append(mask_text(argument))
            option = named if name.startswith("-") and not equals else ""
    return masked


def is_pair_of_secret(name: object, value: object) -> bool:
    """Whether it is a name and its secret: (``HF_TOKEN``, X), but not (``private``, ``public``)."""
    if not names_secret(name, value):
        return False
    is_word = isinstance(name, str) and name.isalpha() and isinstance(value, str) and value.isalpha() and value.islower()
    return not is_word or is_surely_secret(str(name))


def secret_members(members: Mapping[object, object]) -> frozenset[object]:
    """Members of ``{"name": "HF_TOKEN", "value": X}`` that hold the secret; empty for any other mapping."""
    if len(members) > 32:
        return frozenset()
    names = [item for key, item in members.items() if str(key).lower() in NAME_MEMBERS]
    holders = [key for key in members if str(key).lower() in VALUE_MEMBERS]
    return frozenset(key for key in holders if any(names_secret(name, members[key]) for name in names))


def names_secret(name: object, value: object) -> bool:
    """Whether ``name`` is a name, and one of a secret; anything may stand there."""
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME and " " not in name and is_secret_name(name, value)


def _mask_users(text: str) -> str:
    """``user:password@`` of addresses, and a token in a user's place."""

    def without(found: re.Match[str]) -> str:
        is_path = found["scheme"].lower() in ("http://", "https://") and _PORT_AND_PATH.match(found["word"])
        return found[0] if is_path else f"{found['scheme']}{MASK}@"

    if "://" in text:
        text = _URL_PASSWORD.sub(without, text)
        text = _URL_USER.sub(rf"\1{MASK}@", text)
    return _HOST_USER.sub(f"{MASK}@", text)


def _mask_values(text: str, leads: re.Pattern[str]) -> str:
    """What follows the name of a secret."""
    pieces: list[str] = []
    done = 0
    looks = _FREE_LOOKS + _LOOKS_PER_CHARACTER * len(text)
    for lead in leads.finditer(text):
        if lead.start() < done:
            continue
        name = lead[1] if leads is _OPTION else _name_before(text, lead.start(), done)
        if not name:
            continue
        if looks <= 0:
            return "".join((*pieces, text[done : lead.end()], MASK))
        found = _VALUE.match(text, lead.end())
        looks -= found.end() - found.start() if found is not None else 0
        if found is None or not _hides(name, found, is_option=leads is _OPTION):
            continue
        opening = found["escaped"] or found["double"] or found["single"] or ""
        pieces += (text[done : lead.end()], found["scheme"], opening, MASK)
        done = found.end()
    return "".join((*pieces, text[done:])) if pieces else text


def _name_before(text: str, end: int, begin: int) -> str:
    """The name that ends there; "" when it surely is none of a secret."""
    before = text[max(begin, end - _MAX_NAME) : end]
    name = before[len(before.rstrip(_NAME_CHARACTERS)) :]
    rest = before[: len(before) - len(name)]
    if rest[-1:] in ("?", "&") and _ADDRESS_PARTS.match(name):
        return "access_signature"
    if rest[-1:] == " " and name.lower() in ("key", "keys", "id", "word", "phrase", "string"):  # ``API key: X``
        rest = rest[:-1]
        name = f"{rest[len(rest.rstrip(_NAME_CHARACTERS)) :]}_{name}"
    return name if _is_hinted(name) else ""


def _hides(name: str, found: re.Match[str], *, is_option: bool) -> bool:
    value = found[0]
    bare = found["bare"]
    if is_option and bare is not None and _OPTION_LIKE.match(bare):
        return False
    plain = value.strip("\\\"'")
    if not plain or plain.lower() in _NOTHING:
        return False
    if not is_secret_name(name, _typed(plain)) or (name.lower() in ("pwd", "oldpwd") and plain[0] == "/"):
        return False
    # "authentication: failed" and "Token: unexpected" are words about them; a secret without a digit is a long one.
    is_word = bare is not None and not is_option and not found["scheme"] and plain.isalpha() and plain.islower()
    return is_surely_secret(name) or not is_word or _TOKEN_NAME.search(name) is not None


_TOKEN_NAME = re.compile(r"token|key", re.IGNORECASE)


def _is_hinted(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in _HINTS)


def _typed(value: str) -> object:
    return 0 if _NUMBER.match(value) else value
