"""A cache for parsers whose output many checks read."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

from rackproof.parse.errors import ParseError

Parser = TypeVar("Parser", bound=Callable[..., Any])


def remembered(size: int) -> Callable[[Parser], Parser]:
    """``lru_cache`` for pure parsers; unlike it, also remembers that a text is refused. Arguments are hashable."""

    def decorate(parser: Parser) -> Parser:
        @lru_cache(size)
        def parsed(*arguments: Any, **options: Any) -> Any:
            try:
                return parser(*arguments, **options), None
            except ParseError as error:
                return None, error.with_traceback(None)

        @wraps(parser)
        def parse(*arguments: Any, **options: Any) -> Any:
            result, error = parsed(*arguments, **options)
            if error is not None:
                raise type(error)(error.tool, error.reason)
            return result

        return cast(Parser, parse)

    return decorate
