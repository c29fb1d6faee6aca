"""Expressions behind an operator give what Spark gives: every one that is supported, over values that are known to hurt
and over drawn ones, in both modes of arithmetic and in several time zones."""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyspark.sql import functions as f
from side_by_side import SideBySide

from clonos.errors import QueryDefinitionError

ANSI = ["true", "false"]
INTS = [0, 1, -1, 7, -7, 2**31 - 1, -(2**31), None]
LONGS = [0, 1, -1, 13, -13, 2**63 - 1, -(2**63), 2**53 + 1, None]
FLOATS = [0.0, -0.0, 1.0, -1.5, 2.5, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.1, None]
TEXTS = [
    *[
        "",
        "a",
        "abc",
        "aBc",
        "  x ",
        "\tx\n",
        "äÖß",
        "Straße ΣΑΣ",
        "ΑΣ Σ",
        "ΣΣ1Σ",
        "İ\u0131\u017fK",
        "ǆǅ",
        "x%y",
        "x_y",
    ],
    *[
        "a\\b",
        "a.b",
        "a\nb",
        "\n",
        "a\r",
        "a\r\n",
        "a\u2028",
        "😀ab",
        "12",
        "+5",
        "-7",
        " 42 ",
        "\x7f9",
        "1.5",
        "1e3",
    ],
    *["2147483648", "9223372036854775808", "-", "t", "YES", "no ", "0", "tru", "null", None, "aaa", "ab12"],
    *["foo@bar.com", "\u00a05", "ﬁ", "\u0345a", "a\u0301"],
]

OF_INTEGERS = """a+b; a-b; a*b; a/b; a%b; a div b; -a; -b; abs(a); abs(b); b div a; b%a; a+1; a-1; a*2; a/0; a div 0;
a%0; a&3; a|3; a^3; ~a; +a; mod(a,b); try_add(a,2147483647); try_subtract(a,5); try_multiply(a,a); try_divide(a,b);
a=b; a<=>b; a<b; a<=b; a>b; a>=b; a!=b; a IN (1,2,null); a IN (b,7); greatest(a,b); least(a,b,1); coalesce(a,b);
nvl(a,3); ifnull(b,a); nullif(a,b); nvl2(a,b,5); a BETWEEN -1 AND 7; if(a>b,a,b);
case when a>0 then 'p' when a<0 then 'n' end; case a when 1 then 'x' else 'y' end; a is null; a is not null;
a>0 and b>0; a>0 or b>0; not(a>0); a>0 and null; a>0 or null; cast(a as boolean); cast(a as string);
cast(b as string); cast(b as int); cast(b as smallint); cast(b as tinyint); cast(a as double); cast(b as double);
cast(b as float); cast(a as float); cast(a as decimal(12,2)); cast(b as decimal(10,3)); try_cast(b as int);
cast(b as boolean); cast(a>0 as int); cast(a>0 as string); cast(a>0 as double); cast(a>0 as bigint)"""
OF_NARROW = """s+b; s*s; b+b; b*b; -s; -b; abs(b); s div b; s%b; b-1; cast(s as tinyint); s=b; b/s; cast(b as string);
cast(b as decimal(3,0)); s & 3S"""
OF_FLOATS = """d+e; d-e; d*e; d/e; d%e; -d; abs(d); d=e; d<=>e; d<e; d<=e; d>e; d>=e; isnan(d); nanvl(d,e);
greatest(d,e); least(d,e); cast(d as int); cast(d as bigint); cast(d as smallint); cast(d as tinyint);
cast(d as float); cast(d as boolean); try_cast(d as int); try_cast(d as tinyint); d IN (1.0D, double('NaN'));
nullif(d,e); d = 0; cast(d as float)+cast(e as float); cast(d as float)*cast(e as float);
cast(d as float)%cast(e as float); -cast(d as float); cast(d as float)=cast(e as float);
cast(cast(d as float) as int); cast(cast(d as float) as bigint); cast(cast(d as float) as tinyint);
cast(cast(d as float) as double)"""
OF_DECIMALS = """m+n; m-n; m*n; m/n; m%n; m+m; m*m; m/m; n*n; n+n; n/m; n%m; -m; abs(m); m=n; m<n; m<=>n;
greatest(m,n); m+i; i*m; m/i; m%i; m>1.5; m=12.35; m IN (1,12.35); coalesce(m,n); m*1.1; m/3; cast(m as int);
cast(n as int); cast(n as bigint); cast(m as tinyint); cast(m as double); cast(n as double); cast(m as decimal(6,1));
cast(m as decimal(20,10)); cast(n as decimal(10,2)); cast(m as string); cast(n as string); cast(m as boolean);
try_cast(n as int); try_cast(m as decimal(4,1)); cast(m*0.0001 as string); cast(-m*0.001 as string);
cast(cast(-m as decimal(3,1)) as string); try_divide(m,n); try_add(n,n); cast(i as decimal(5,0)); m + 1e0"""
OF_TEXT = r"""s||t; concat(s,t,'x'); upper(s); lower(s); trim(s); ltrim(s); rtrim(s); trim(BOTH t FROM s);
trim(LEADING 'ab' FROM s); btrim(s,t); length(s); char_length(s); substring(s,1,2); substring(s,2); substring(s,-2,1);
substring(s,0,2); substring(s,-5,3); substring(s,1,-1); substring(s,length(t),2); left(s,2); right(s,2); left(s,0);
right(s,-1); s LIKE 'a%'; s LIKE '%b_'; s LIKE '_'; s LIKE 'x\\%y'; s LIKE 'a!%%' ESCAPE '!'; s ILIKE 'A%';
s LIKE '%'; s LIKE ''; s RLIKE 'a'; s RLIKE '^a.*b$'; s RLIKE '^[a-z]+$'; s RLIKE 'a.b'; s RLIKE '[^a-c]';
s RLIKE '(a|b)c?'; s RLIKE '^\\d{2}$'; s RLIKE '\\w+@\\w+\\.com'; s RLIKE '\\s'; s RLIKE 'a$'; s RLIKE '^.$';
s RLIKE '\\S'; s RLIKE '(?:ab|aa)+$'; s RLIKE ''; startswith(s,t); endswith(s,t); contains(s,t); replace(s,t,'z');
replace(s,'a'); s=t; s<t; s<=>t; s>=t; greatest(s,t); least(s,t); s IN ('a','abc',null); cast(s as boolean);
cast(s as binary); ascii(s); nullif(s,t); coalesce(t,s); s is null; case when s like 'a%' then upper(s) else t end;
try_cast(s as boolean); if(s=t,1,2)"""
OF_NUMBERS_IN_TEXT = "cast(s as int); cast(s as bigint); cast(s as tinyint); s = 5; s > 3"
OF_BOOLEANS = """b and c; b or c; not b; b=c; b<=>c; b<c; b is null; cast(b as int); cast(b as string); if(b,1,2);
nvl(b,c); b is true; b is not false; b in (c, true)"""
OF_BYTES = "x=y; x<y; length(x); x<=>y; greatest(x,y)"
OF_NESTED = """st.x; st.y; st.x+i; ar[0]; ar[i]; ar[-1]; element_at(ar,1); element_at(ar,-1); element_at(ar,0);
element_at(ar,i); m['a']; m['q']; element_at(m,'b'); element_at(m,'nope'); size(ar); size(m); struct(i, st.x as q);
named_struct('p',i,'r',st); array(i,1,null); array(st.x); st is null; ar is null; st; ar; m; struct(st.*);
coalesce(ar, array(1)); if(i>0,st,null); array('a','b'); try_element_at(ar,9); get(ar,1); struct(ar,m); m[st.y];
array_contains(ar,1)"""
OF_FIELDS = [
    lambda: f.col("st").withField("z", f.col("i") + 1),
    lambda: f.col("st").withField("x", f.when(f.col("i") > 0, 2.5)),
    lambda: f.col("st").dropFields("x"),
    lambda: f.col("st").withField("again", f.col("st")).withField("again.x", f.col("i")).dropFields("y"),
    lambda: f.col("st").withField("again", f.col("st")).dropFields("again.y").getField("again"),
    lambda: f.struct("i", "ar").withField("ar", f.col("st.y")),
]
PARTS = "; ".join(f"{part}({{0}})" for part in "year month day dayofyear dayofweek weekday quarter".split())
OF_CLOCKS = "; ".join(
    [
        PARTS,
        "hour({0}); minute({0}); second({0}); cast({0} as date); to_date({0}); extract(HOUR FROM {0})",
        *[
            f"date_trunc('{unit}',{{0}})"
            for unit in "year quarter MONTH week day hour minute second millisecond microsecond".split()
        ],
    ]
)
OF_INSTANTS = """t=u; t<u; t<=>u; greatest(t,u); least(t,u); t in (u); cast(t as bigint); cast(t as double);
t > date'2020-01-01'; t = timestamp'2024-02-29 12:30:45.123456'; t > '2020-01-01'; nullif(t,u); coalesce(t,u);
unix_micros(t); unix_millis(t); unix_seconds(t); t is null"""
OF_DATES = """cast(d as string); cast(n as string); d=cast(n as date); d<=>cast(n as date); cast(d as timestamp_ntz);
n>d; datediff(d,date'2020-01-01'); greatest(d,date'2020-01-01'); d in (date'2024-02-29', null); d > '2020-01-01';
n < '2020-01-01 00:00:00'"""


@pytest.fixture(autouse=True)
def quiet(spark: Any) -> Iterator[None]:
    logger = logging.getLogger("SQLQueryContextLogger")  # of errors that are meant
    logger.disabled = True
    yield
    logger.disabled = False


def listed(expressions: str) -> list[str]:
    return [each.strip() for each in expressions.split(";")]


def clock(*parts: int, fold: int = 0) -> dt.datetime:
    return dt.datetime(*parts, fold=fold)  # type: ignore[arg-type, misc]


CLOCKS = [
    clock(1970, 1, 1),
    clock(1969, 12, 31, 23, 59, 59, 999999),
    clock(2024, 2, 29, 12, 30, 45, 123456),
    clock(2023, 12, 31, 23, 59, 59, 999000),
    clock(1582, 10, 10, 1, 2, 3),
    clock(2021, 1, 3, 0, 0, 0, 1),
    clock(1900, 1, 1, 0, 0, 7),
    clock(2024, 10, 27, 2, 30),
    clock(2024, 10, 27, 2, 30, fold=1),
    clock(2024, 3, 31, 3, 0),
    None,
]
DAYS = [dt.date(1970, 1, 1), dt.date(1582, 10, 10), dt.date(2024, 2, 29), dt.date(2023, 1, 1), None]
EDGES = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]


def decimals(*texts: str) -> list[Decimal | None]:
    return [*map(Decimal, texts), None]


SMALL = decimals("0.00", "0.01", "-0.01", "1.00", "99999999.99", "-99999999.99", "12.35", "0.05")
LARGE = decimals("0", "1", "-1", "12345678901234567890123456789012345678", "-" + "9" * 38, "3")


@pytest.mark.parametrize("ansi", ANSI)
@pytest.mark.parametrize(
    ("ddl", "columns", "expressions"),
    [
        pytest.param("a int, b bigint", (INTS, LONGS), OF_INTEGERS, id="integers"),
        pytest.param(
            "s smallint, b tinyint",
            ([-(2**15), 2**15 - 1, 0, 1, -1, None], [-128, 127, 0, 1, -1, None]),
            OF_NARROW,
            id="narrow",
        ),
        pytest.param("d double, e double", (FLOATS, FLOATS), OF_FLOATS, id="floats"),
        pytest.param(
            "m decimal(10,2), n decimal(38,0), i int",
            (SMALL, LARGE, [0, 3, -(2**31), None]),
            OF_DECIMALS,
            id="decimals",
        ),
        pytest.param("s string, t string", (TEXTS, ["a", "", "b", None, "ab", " ", "Σ"]), OF_TEXT, id="text"),
        pytest.param("b boolean, c boolean", ([True, False, None],) * 2, OF_BOOLEANS, id="booleans"),
        pytest.param("x binary, y binary", ([b"", b"a", b"\xff", b"ab", None],) * 2, OF_BYTES, id="bytes"),
    ],
)
def test_values_that_hurt(
    spark: Any, ddl: str, columns: tuple[list[Any], ...], expressions: str, ansi: str
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    SideBySide(spark, ddl, list(itertools.product(*columns))).check(listed(expressions))


@pytest.mark.parametrize("ansi", ANSI)
def test_ends_of_ranges_of_floats(spark: Any, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    ends = [
        2147483647.0,
        2147483648.0,
        2147483647.5,
        -2147483648.9,
        -2147483649.0,
        9.2e18,
        2.0**63,
        -(2.0**63),
        1e19,
    ]
    ends += [127.9, 128.0, -128.5, -129.0, 32767.7, 16777217.0, 2147483520.0]
    rows = [(each,) for each in ends]
    kinds = ("int", "bigint", "smallint", "tinyint")
    casts = [f"cast({given} as {kind})" for given in ("d", "cast(d as float)") for kind in kinds]
    SideBySide(spark, "d double", rows).check(casts)


def test_numbers_in_text(spark: Any) -> None:
    together = SideBySide(spark, "s string", [(text,) for text in TEXTS])
    together.check(listed(OF_NUMBERS_IN_TEXT))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    for expression in listed(OF_NUMBERS_IN_TEXT):
        with pytest.raises(QueryDefinitionError, match="string to"):
            together.ours(expression)


@pytest.mark.parametrize("ansi", ANSI)
def test_nested_values(spark: Any, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    rows = [
        ((1, "x"), [1, None, 3], {"a": 1, "b": None}, 7),
        ((None, None), [], {}, 0),
        (None, None, None, None),
        ((5, "q"), [9], {"zz": 3}, -1),
        ((5, "a"), [4, 5], {"a": 3}, 1),
    ]
    ddl = "st struct<x:int,y:string>, ar array<int>, m map<string,int>, i int"
    SideBySide(spark, ddl, rows).check([*listed(OF_NESTED), *OF_FIELDS])
    of_nan = [([math.nan],), ([0.0, None],), ([-0.0],), (None,), ([1.0],)]
    nan = ["array_contains(d,double('NaN'))", "array_contains(d,0.0D)", "d[0]"]
    SideBySide(spark, "d array<double>", of_nan).check(nan)


@pytest.mark.parametrize(
    "zone",
    [
        "UTC",
        "+05:30",
        "Europe/Berlin",
        *(pytest.param(each, marks=pytest.mark.soak) for each in ("-07:00", "America/St_Johns")),
    ],
)
def test_moments(spark: Any, zone: str) -> None:
    """Of a region's instants only what goes by instants."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    instants = SideBySide(spark, "t timestamp, u timestamp", list(itertools.product(CLOCKS, CLOCKS)))
    instants.check(listed(OF_INSTANTS))
    by_clock = [*listed(OF_CLOCKS.format("t")), "cast(t as string)", "cast(t as timestamp_ntz)"]
    if "/" not in zone:
        instants.check(by_clock)
    else:
        for expression in by_clock:
            with pytest.raises(QueryDefinitionError, match="is not evaluated behind an operator"):
                instants.ours(expression)
    walls = SideBySide(spark, "n timestamp_ntz, d date", list(itertools.product(CLOCKS, DAYS + EDGES)))
    walls.check([*listed(OF_DATES), *listed(PARTS.format("d")), "hour(n)", "year(n)", "cast(n as date)"])
    if "/" not in zone:
        walls = SideBySide(spark, "n timestamp_ntz, d date", list(itertools.product(CLOCKS, DAYS)))
        walls.check([*listed(OF_CLOCKS.format("n")), "cast(n as timestamp)", "cast(d as timestamp)"])
        walls.check(["date_add(d,5)", "date_sub(d,5)", "d+1", "d-1"])


def test_every_letter(spark: Any) -> None:
    """Upper and lower case are Spark's, whatever edition of Unicode Python has."""
    codes = [*range(0x20, 0x3000), *range(0xA640, 0xAB70), *range(0xF900, 0x10000), *range(0x10400, 0x10600)]
    codes += [
        *range(0x10C80, 0x11000),
        *range(0x118A0, 0x118F0),
        *range(0x16E40, 0x16EA0),
        *range(0x1E900, 0x1E960),
    ]
    rows = [(chr(code),) for code in codes if not 0xD800 <= code < 0xE000]
    SideBySide(spark, "s string", rows).check(["upper(s)", "lower(s)", "length(s)", "trim(s)"])


WIDE = (
    "a int, b bigint, d double, f float, m decimal(12,3), s string, t timestamp, n timestamp_ntz, c boolean"
)
DRAWN_TIMES = st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1))
COLUMNS = (
    st.integers(-(2**31), 2**31 - 1) | st.integers(-9, 9),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
    st.floats(),
    st.floats(width=32),
    st.decimals(Decimal("-999999999"), Decimal("999999999"), places=3),
    st.text(st.characters(exclude_categories=["Cs", "Cn"], exclude_characters="Σʕ"), max_size=6),
    DRAWN_TIMES,
    DRAWN_TIMES,
    st.booleans(),
)
DRAWN = st.tuples(*[st.none() | column for column in COLUMNS])
OVER_DRAWN = """a+b; a*a; a-b; b div a; a%b; b/a; a/d; d*d; d-f; f*f; f/3; d%f; m*m; m/a; m%a; m+b; -m; a=b; d<f; d=f;
m>a; b>d; greatest(d,f); least(a,b); cast(b as int); cast(d as bigint); cast(f as smallint); cast(d as float);
cast(b as float); cast(m as int); cast(m as decimal(8,1)); cast(m as string); cast(b as decimal(20,2)); s > 'm';
upper(s); lower(s); concat(s, s, cast(a as string)); substring(s, a, 3); substring(s, -3, 2); length(trim(s));
s like '%a%'; s rlike '[0-9]+$'; replace(s, 'a', 'bb'); t > n; t = n; cast(t as double); year(t); hour(t);
date_trunc('week', n); cast(t as string); cast(n as date); c and a > 0; c or d > 0;
case when c then a when a > 5 then 7 else -a end; coalesce(a, b, 0); nullif(a, 5); a in (1, 2, b);
struct(a, m as q, array(s)); if(c, m, m + 1)"""


@pytest.mark.parametrize("ansi", ANSI)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(DRAWN, min_size=8, max_size=40))
def test_drawn_values(spark: Any, ansi: str, rows: list[tuple[Any, ...]]) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    SideBySide(spark, WIDE, rows).check(listed(OVER_DRAWN))
