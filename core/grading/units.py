"""Units of quantities: their spellings, and their sizes where one can be converted into another.

A small table, and no unit library: an answer's unit is compared, never computed with, and a library takes longer to
import than a whole vote. Sizes are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cache, lru_cache
from typing import NamedTuple

from core.grading.names import names

_LONGEST = 60  # characters of a unit

# A unit, its size in other units (`-`: it is a dimension of its own), and its spellings. A spelling with `~` takes the
# prefixes of the SI.
_TABLE = r"""
m           -           ~m meter meters metre metres 米 公尺 м metros mètres метров
centimetre  .01 m       cm 厘米 公分 см
millimetre  .001 m      mm 毫米 мм
kilometre   1000 m      km 千米 公里 км
angstrom    1e-10 m     Å angstrom angstroms
inch        .0254 m     in inch inches
foot        .3048 m     ft foot feet
yard        .9144 m     yd yds yard yards
mile        1609.344 m  mi mile miles
au          -           AU au
lightyear   -           ly light-year light-years lightyear lightyears
parsec      -           ~pc parsec parsecs
g           -           ~g gm gram grams gramme grammes 克 г
kilogram    1000 g      kg 千克 公斤 кг
tonne       1e6 g       tonne tonnes
ton         -           ton tons
pound       -           lb lbs pound pounds
ounce       -           oz ounce ounces
second      -           ~s sec secs second seconds 秒 秒钟 сек Sekunden segundos
minute      60 second   min mins minute minutes 分钟 мин Minuten minutos
hour        3600 second h hr hrs hour hours 小时 Stunde Stunden heure heures hora horas
day         86400 second day days 天 日 Tag Tage jour jours día días
week        604800 second wk wks week weeks
month       -           mo mos month months
year        12 month    yr yrs year years 年 岁 歲 Jahr Jahre ans años
litre       .001 m^3    ~L ~l liter liters litre litres 升
cc          .000001 m^3 cc ccm
gallon      -           gal gallon gallons
quart       -           qt qts quart quarts
pint        -           pt pint pints
cup         -           cup cups
teaspoon    -           tsp teaspoon teaspoons
tablespoon  -           tbsp tablespoon tablespoons
hectare     10000 m^2   ha hectare hectares
acre        -           acre acres
mph         1 mile/hour mph
mpg         -           mpg
kmh         1000 m/hour kph kmh
knot        -           kn knot knots
N           1000 g*m/second^2 ~N newton newtons
Pa          1000 g/m*second^2 ~Pa pascal pascals
J           1000 g*m^2/second^2 ~J joule joules
W           1000 g*m^2/second^3 ~W watt watts
Hz          -           ~Hz hertz
rpm         -           rpm
dyne        -           dyn dyne dynes
erg         -           erg ergs
eV          -           ~eV
calorie     -           ~cal calorie calories
Calorie     -           Cal Calorie Calories
horsepower  -           hp horsepower
BTU         -           BTU Btu
amu         -           u amu dalton daltons
siemens     -           S siemens
Wh          3600000 g*m^2/second^2 ~Wh
atm         -           atm atmosphere atmospheres
bar         -           ~bar bars
torr        -           torr Torr mmHg
psi         -           psi
A           -           ~A amp amps ampere amperes
V           -           ~V volt volts
ohm         -           ~ohm ohms Ω
C           -           C coulomb coulombs
F           -           ~F farad farads
H           -           ~H henry henries henrys
T           -           ~T tesla teslas
Wb          -           Wb weber webers
gauss       -           G gauss
K           -           ~K kelvin kelvins
celsius     -           celsius ^\circC
fahrenheit  -           fahrenheit ^\circF
mol         -           ~mol mole moles
molar       -           ~M
ppm         -           ppm
ppb         -           ppb
dB          -           dB decibel decibels
lumen       -           lm lumen lumens
lux         -           lx lux
cd          -           cd candela candelas
Bq          -           ~Bq becquerel becquerels
Gy          -           Gy gray grays
Sv          -           ~Sv sievert sieverts
bit         -           ~bit bits
bps         -           ~bps
byte        -           B byte bytes
KB          -           KB kB kilobyte kilobytes
MB          -           MB megabyte megabytes
GB          -           GB gigabyte gigabytes
TB          -           TB terabyte terabytes
degree      -           degrees ^\circ deg degs degree 度
radian      -           ~rad radian radians
steradian   -           sr steradian steradians
revolution  -           rev revs revolution revolutions
dollar      -           dollars US\$ US$ \$ $ dollar USD bucks 美元
cent        .01 dollar  cent cents
euro        -           euros € \euro euro EUR 欧元
sterling    -           sterling £ \pounds GBP quid 英镑
penny       .01 sterling pence p
yuan        -           元 块 yuan CNY RMB yuans
yen         -           円 yen JPY
yensign     -           ¥
rupee       -           ₹ Rs Rs. rupee rupees INR
won         -           ₩ won KRW 원
dong        -           ₫ dong VND
baht        -           ฿ baht THB
hryvnia     -           ₴ hryvnia UAH
naira       -           ₦ naira NGN
zloty       -           zł zloty PLN
rouble      -           ₽ ruble rubles rouble roubles RUB
peso        -           ₱ peso pesos MXN PHP
franc       -           franc francs CHF
cad         -           CAD C\$ C$
aud         -           AUD A\$ A$
hkd         -           HKD HK\$ HK$
nzd         -           NZD NZ\$ NZ$
sgd         -           SGD S\$ S$
krona       -           SEK kr krona kronor krone kroner NOK DKK
real        -           BRL R\$ R$ reais
lira        -           ₺ lira liras TRY
dirham      -           AED dirham dirhams
rand        -           ZAR
unit        -           unit units
point       -           pts point points
person      -           人 名 명 位 people person persons
item        -           个 個 只 支 本 张 條 条 棵 次 种 種 件 辆 台 套 组 개 штук шт Stück
ordinal     -           st nd rd th
man         -           man men
woman       -           woman women
child       -           child children
mouse       -           mice mouse
tooth       -           teeth tooth
goose       -           geese goose
fish        -           fish
sheep       -           sheep
deer        -           deer
cattle      -           cattle
"""
_PREFIXES = {
    **{"k": 3, "c": -2, "m": -3, "M": 6, "G": 9, "T": 12, "h": 2, "d": -1, "da": 1, "P": 15},
    **{"u": -6, "µ": -6, "n": -9, "p": -12, "f": -15},
}
_PREFIX_WORDS = {"kilo": 3, "centi": -2, "milli": -3, "mega": 6, "giga": 9, "micro": -6, "nano": -9, "deci": -1}
_POWER_WORDS = {"square": 2, "squared": 2, "sq": 2, "cubic": 3, "cubed": 3, "cu": 3, "平方": 2, "立方": 3}

# Words that follow a number and are no unit, although they end as a plural does: they change the number, or go on.
_NO_NOUN = frozenset(
    names(
        "times plus minus less this thus less is was has does equals divides exceeds tens hundreds thousands "
        "millions billions trillions dozens scores halves thirds fourths quarters fifths sixths sevenths "
        "eighths ninths tenths hundredths thousandths squares cubes always perhaps sometimes hours-plus "
        "others percents mods factors"
    )
)
_ITEM = re.compile(
    r"\^\{?\\circ\}?(?:[CF](?![A-Za-z]))?|\\[a-z]+|[A-Z]{0,2}\\?\$"
    r"|[^\W\d_]+(?:-[^\W\d_]+)*\.?|[€£¥₹₩₽₫฿₺₴₦₱]"
)
_EXPONENT = re.compile(r"\^\{?(-?[1-4])\}?")
_AFTERWARDS = re.compile(r" (squared|cubed)(?![a-z])")
_SEPARATOR = re.compile(r" ?(?:\\cdot|\*|/|per(?![a-z]))? ?")


COUNTED = " (counted)"  # ends the name of a basic unit that is a noun


class Unit(NamedTuple):
    """A unit: `size` times the product of `powers`, which are sorted pairs of a basic unit and its exponent."""

    size: Fraction
    powers: tuple[tuple[str, int], ...]
    words: tuple[tuple[str, int], ...]  # sorted: one spelling of each of its factors, and the exponent

    @property
    def latex(self) -> str:
        """The one spelling of all units with the same factors."""
        return r"\cdot".join(
            rf"\text{{{word}}}" + (f"^{{{exponent}}}" if exponent != 1 else "") for word, exponent in self.words
        )


def read_unit(text: str) -> Unit | None:
    """The unit that a text names, such as `cm`, `sq. ft`, `kg\\cdot m/s^{2}` or `marbles`; None if it names none."""
    return _read(text.strip()) if len(text) <= _LONGEST else None


def is_currency(text: str) -> bool:
    """Whether a text names a currency, which may stand in front of its number."""
    unit = read_unit(text)
    return unit is not None and unit.powers[0][0] in _MONEY


@lru_cache(maxsize=4096)
def _read(text: str) -> Unit | None:
    product: Unit | None = None
    for word, exponent in _factors(text):
        unit = _named(word)
        if unit is None:
            return None
        product = _times(product or _ONE, unit, exponent)
    return product if product and product.powers else None


def _factors(text: str) -> Iterator[tuple[str, int]]:
    """The words of a unit with their exponents; ("", 0) where the text cannot go on as a unit."""
    end, below, power = 0, 1, 1
    while end < len(text):
        separator = _SEPARATOR.match(text, end)
        start = separator.end() if separator else end
        if separator and separator[0].strip() in ("/", "per"):
            below = -1
        item = _ITEM.match(text, start)
        if item is None:
            yield "", 0
            return
        end = item.end()
        word = item[0].rstrip(".") if item[0] != "Rs." else item[0]
        if word[:2] in ("平方", "立方") and len(word) > 2:
            word, end = word[:2], end - len(word) + 2
        if word.lower() in _POWER_WORDS:
            if word.lower().endswith("ed") or power > 1:  # `meters squared` is read with its unit
                yield "", 0
                return
            power = _POWER_WORDS[word.lower()]
            continue
        written = _EXPONENT.match(text, end)
        squared = _AFTERWARDS.match(text, end)
        exponent = int(written[1]) if written else _POWER_WORDS[squared[1]] if squared else 1
        end = written.end() if written else squared.end() if squared else end
        yield word, below * power * exponent
        power = 1
    if power > 1:
        yield "", 0


def _times(product: Unit, unit: Unit, exponent: int) -> Unit:
    powers, words = (
        _sum(ours, theirs, exponent) for ours, theirs in ((product.powers, unit.powers), (product.words, unit.words))
    )
    return Unit(product.size * unit.size**exponent, powers, words)


def _sum(
    ours: Iterable[tuple[str, int]], theirs: Iterable[tuple[str, int]], factor: int
) -> tuple[tuple[str, int], ...]:
    exponents = dict(ours)
    for name, exponent in theirs:
        exponents[name] = exponents.get(name, 0) + exponent * factor
    return tuple(sorted((name, exponent) for name, exponent in exponents.items() if exponent))


def _named(word: str) -> Unit | None:
    """The unit of one word; a word in the plural that is no known unit counts its things, and is a unit of its own."""
    word = word.replace("{", "").replace("}", "").replace(" ", "")
    for spelling in (word, word.lower()) if len(word) > 2 else (word,):
        if (unit := _spellings().get(spelling)) is not None:
            return unit
    noun = word.lower()
    if re.fullmatch(r"[a-z-]{3,}s", noun) and not noun.endswith(("ss", "us")) and noun not in _NO_NOUN:
        return Unit(Fraction(1), ((noun + COUNTED, 1),), ((noun, 1),))
    return None


@cache
def _spellings() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    basic: dict[str, Unit] = {}
    for line in _TABLE.strip().splitlines():
        name, size, *rest = line.split()
        unit = Unit(Fraction(1), ((name, 1),), ())
        if size != "-":
            unit = _composed(Fraction(size), rest.pop(0), basic)
        basic[name] = unit
        word = rest[0].removeprefix("~")
        for written in rest:
            spelling = written.removeprefix("~")
            units[spelling] = unit._replace(words=((word, 1),))
            for prefix, power in _PREFIXES.items() if written != spelling else ():
                units.setdefault(prefix + spelling, _prefixed(unit, prefix + word, power))
            for prefix, power in _PREFIX_WORDS.items() if len(spelling) > 3 else ():
                symbol = next(short for short, of_short in _PREFIXES.items() if of_short == power)
                units.setdefault(prefix + spelling, _prefixed(unit, symbol + word, power))
    return units


def _prefixed(unit: Unit, word: str, power: int) -> Unit:
    return Unit(unit.size * Fraction(10) ** power, unit.powers, ((word, 1),))


def _composed(size: Fraction, formula: str, basic: dict[str, Unit]) -> Unit:
    """The unit of a formula of the table, such as `g*m/second^2`."""
    above, _, under = formula.partition("/")
    product = Unit(size, (), ())
    for sign, side in ((1, above), (-1, under)):
        for factor in filter(None, side.split("*")):
            name, _, power = factor.partition("^")
            product = _times(product, basic[name], sign * int(power or 1))
    return product


_ONE = Unit(Fraction(1), (), ())
_MONEY = frozenset(
    names(
        "dollar euro sterling yuan yen yensign rupee won rouble peso franc cad aud hkd nzd sgd krona real "
        "lira dirham rand dong baht hryvnia naira zloty"
    )
)
