"""The units that `core.grading.units` reads, with their spellings, and the words that are none."""

from __future__ import annotations

from core.grading.names import names

# A unit, its size in other units (`-`: it is a dimension of its own), and its spellings. A spelling with `~` takes the
# prefixes of the SI.
TABLE = r"""
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
arcminute   1/60 degree arcmin
arcsecond   1/3600 degree arcsec
radian      -           ~rad radian radians
steradian   -           sr steradian steradians
revolution  -           rev revs revolution revolutions
dollar      -           dollars US\$ US$ \$ $ dollar USD bucks 美元
cent        .01 dollar  cent cents
euro        -           euros € \euro euro EUR 欧元
sterling    -           sterling £ \pounds GBP quid 英镑
penny       .01 sterling pence
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
PREFIXES = {
    **{"k": 3, "c": -2, "m": -3, "M": 6, "G": 9, "T": 12, "h": 2, "d": -1, "da": 1, "P": 15},
    **{"u": -6, "µ": -6, "n": -9, "p": -12, "f": -15},
}
PREFIX_WORDS = {"kilo": 3, "centi": -2, "milli": -3, "mega": 6, "giga": 9, "micro": -6, "nano": -9, "deci": -1}
POWER_WORDS = {"square": 2, "squared": 2, "sq": 2, "cubic": 3, "cubed": 3, "cu": 3, "平方": 2, "立方": 3}

# Words that follow a number and are no unit, although they end as a plural does: they change the number, or go on.
NO_NOUN = frozenset(
    names(
        "times plus minus less this thus less is was has does equals divides exceeds tens hundreds thousands "
        "millions billions trillions dozens scores halves thirds fourths quarters fifths sixths sevenths "
        "eighths ninths tenths hundredths thousandths squares cubes always perhaps sometimes hours-plus "
        "others percents mods factors mores squareds cubeds halfs overs unders fewers remainders"
    )
)
MONEY = frozenset(
    names(
        "dollar euro sterling yuan yen yensign rupee won rouble peso franc cad aud hkd nzd sgd krona real "
        "lira dirham rand dong baht hryvnia naira zloty"
    )
)
