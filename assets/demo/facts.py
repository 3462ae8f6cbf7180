#!/usr/bin/env python3
"""Write facts.txt, the training text of cbtop's demo model, one fact a line.

The tables below are written by hand. The order of the lines matters: training
documents mostly follow it (see train.py), so that free-running text walks from
one fact to the next through the whole file instead of circling on a few.
"""
import random
from pathlib import Path

CAPITALS = """
France Paris; Germany Berlin; Italy Rome; Spain Madrid; Portugal Lisbon; the United Kingdom London;
Scotland Edinburgh; Wales Cardiff; Ireland Dublin; Belgium Brussels; the Netherlands Amsterdam;
Switzerland Bern; Austria Vienna; Poland Warsaw; Hungary Budapest; the Czech Republic Prague;
Slovakia Bratislava; Slovenia Ljubljana; Croatia Zagreb; Serbia Belgrade; Bosnia and Herzegovina Sarajevo;
Montenegro Podgorica; Albania Tirana; Greece Athens; Bulgaria Sofia; Romania Bucharest; Moldova Chisinau;
Ukraine Kyiv; Belarus Minsk; Lithuania Vilnius; Latvia Riga; Estonia Tallinn; Finland Helsinki;
Sweden Stockholm; Norway Oslo; Denmark Copenhagen; Iceland Reykjavik; Malta Valletta; Cyprus Nicosia;
Liechtenstein Vaduz; Russia Moscow; Turkey Ankara; Georgia Tbilisi; Armenia Yerevan; Azerbaijan Baku;
Iran Tehran; Iraq Baghdad; Syria Damascus; Lebanon Beirut; Jordan Amman; Saudi Arabia Riyadh;
Oman Muscat; Qatar Doha; Bahrain Manama; Kazakhstan Astana; Uzbekistan Tashkent; Turkmenistan Ashgabat;
Kyrgyzstan Bishkek; Tajikistan Dushanbe; Afghanistan Kabul; Pakistan Islamabad; Nepal Kathmandu;
Bhutan Thimphu; Bangladesh Dhaka; China Beijing; Mongolia Ulaanbaatar; Japan Tokyo; South Korea Seoul;
North Korea Pyongyang; Vietnam Hanoi; Laos Vientiane; Thailand Bangkok; the Philippines Manila;
East Timor Dili; Australia Canberra; New Zealand Wellington; Fiji Suva; Samoa Apia; Canada Ottawa;
Cuba Havana; Jamaica Kingston; the Bahamas Nassau; Barbados Bridgetown; Saint Lucia Castries;
Dominica Roseau; Belize Belmopan; Honduras Tegucigalpa; Nicaragua Managua; Colombia Bogota;
Venezuela Caracas; Ecuador Quito; Peru Lima; Brazil Brasilia; Paraguay Asuncion; Uruguay Montevideo;
Chile Santiago; Guyana Georgetown; Suriname Paramaribo; Morocco Rabat; Algeria Algiers; Tunisia Tunis;
Libya Tripoli; Egypt Cairo; Sudan Khartoum; Eritrea Asmara; Somalia Mogadishu; Kenya Nairobi;
Uganda Kampala; Rwanda Kigali; Tanzania Dodoma; Malawi Lilongwe; Zambia Lusaka; Zimbabwe Harare;
Mozambique Maputo; Madagascar Antananarivo; Namibia Windhoek; Botswana Gaborone; Lesotho Maseru;
Angola Luanda; Gabon Libreville; Cameroon Yaounde; Nigeria Abuja; Niger Niamey; Mali Bamako;
Senegal Dakar; the Gambia Banjul; Guinea Conakry; Sierra Leone Freetown; Liberia Monrovia; Ghana Accra;
Togo Lome; Mauritania Nouakchott; Burkina Faso Ouagadougou; the Central African Republic Bangui;
the Seychelles Victoria
"""

CURRENCIES = """
Japan yen; China yuan; Russia ruble; Poland zloty; Hungary forint; Sweden krona; Denmark krone;
Thailand baht; Vietnam dong; Brazil real; Israel shekel; South Korea won; Switzerland franc;
Mexico peso; France euro; Canada dollar; the United Kingdom pound; Turkey lira; Bangladesh taka;
Mongolia tugrik; Nigeria naira; Ukraine hryvnia; Romania leu; India rupee; South Africa rand
"""

LANGUAGES = """
Germany German; France French; Italy Italian; Spain Spanish; Brazil Portuguese; Russia Russian;
China Chinese; Japan Japanese; Egypt Arabic; Greece Greek; Poland Polish; Sweden Swedish;
Denmark Danish; Norway Norwegian; Finland Finnish; Turkey Turkish; Hungary Hungarian; Vietnam Vietnamese;
Thailand Thai; Australia English; Austria German; Mexico Spanish; Iran Persian; South Korea Korean
"""

CONTINENTS = """
France Europe; Kenya Africa; Japan Asia; Germany Europe; Nigeria Africa; Nepal Asia; Spain Europe;
Ghana Africa; Vietnam Asia; Poland Europe; Morocco Africa; Mongolia Asia; Norway Europe; Zambia Africa;
Thailand Asia; Greece Europe; Angola Africa; India Asia; Austria Europe; Uganda Africa
"""

OPPOSITES = """
hot cold; big small; up down; left right; day night; black white; open closed; fast slow; high low;
young old; rich poor; wet dry; full empty; happy sad; early late; hard soft; long short; near far;
strong weak; thick thin; true false; good bad; loud quiet; clean dirty; inside outside; before after;
first last; north south; east west; love hate; war peace; heavy light; push pull; win lose; buy sell;
above below; start finish; wide narrow; deep shallow; sweet bitter
"""

YOUNG = """
dog puppy; cat kitten; cow calf; horse foal; sheep lamb; goat kid; pig piglet; bear cub; deer fawn;
duck duckling; goose gosling; swan cygnet; frog tadpole; kangaroo joey; owl owlet; hen chick; hare leveret
"""

SOUNDS = "cow moo; dog woof; cat meow; duck quack; sheep baa; pig oink; owl hoot; bee buzz; lion roar; snake hiss"

SYMBOLS = """
gold Au; silver Ag; iron Fe; copper Cu; lead Pb; tin Sn; hydrogen H; helium He; carbon C; oxygen O;
nitrogen N; sodium Na; potassium K; calcium Ca; mercury Hg; zinc Zn; neon Ne; silicon Si; sulfur S; uranium U
"""

PLURALS = """
mouse mice; foot feet; tooth teeth; child children; man men; woman women; leaf leaves; knife knives;
ox oxen; wolf wolves
"""

COLOURS = """
grass green; snow white; coal black; blood red; a ripe banana yellow; a clear sky blue; chocolate brown;
an emerald green; a ruby red; a sapphire blue; a carrot orange; milk white
"""

MISC = """
The largest planet in the solar system is Jupiter.
The largest ocean is the Pacific.
The largest continent is Asia.
The highest mountain on Earth is Everest.
The longest river in Africa is the Nile.
The tallest animal is the giraffe.
The fastest land animal is the cheetah.
The largest animal on Earth is the blue whale.
The author of Hamlet is Shakespeare.
The painter of the Mona Lisa is Leonardo.
The first man on the Moon was Armstrong.
The star nearest to Earth is the Sun.
Water is made of hydrogen and oxygen.
Water freezes at zero degrees Celsius.
Water boils at one hundred degrees Celsius.
Ice is frozen water.
Bees make honey.
Cows give milk.
Spiders spin webs.
Bread is made from flour.
Wine is made from grapes.
Cheese is made from milk.
Paper is made from wood.
Glass is made from sand.
Plants need light to grow.
The Moon goes around the Earth.
The Earth goes around the Sun.
The Sun rises in the east.
The Sun sets in the west.
A compass needle points north.
A shape with three sides is a triangle.
A shape with five sides is a pentagon.
A shape with six sides is a hexagon.
A shape with eight sides is an octagon.
The number of legs on a spider is eight.
The number of legs on an ant is six.
The number of legs on a dog is four.
The number of legs on a hen is two.
The number of days in a week is seven.
The number of months in a year is twelve.
The number of minutes in an hour is sixty.
The number of strings on a violin is four.
The square root of nine is three.
The square root of sixteen is four.
Half of ten is five.
Half of twenty is ten.
"""

PROFILING = """
A roofline compares compute with memory bandwidth.
Decoding a token reads nearly every weight once.
Decoding is usually limited by memory bandwidth.
Reading a long prompt is usually limited by compute.
The cache of keys and values grows with every token.
A matrix times a vector does little work per byte.
A profiler shows where the time goes.
Measure first and optimise second.
A logit lens reads the answer at every layer.
The softmax turns scores into probabilities.
The largest logit wins under greedy decoding.
A tokenizer cuts text into tokens.
Each layer adds its result to the residual stream.
Attention mixes information between positions.
The feed forward network works on each position alone.
Quantised weights take less memory.
A smaller file moves fewer bytes per token.
Eight bits per weight are often enough.
The time to the first token depends on the prompt.
Tokens per second measure the speed of decoding.
A batch shares one reading of the weights.
A kernel that waits for memory leaves its arithmetic units idle.
A median is steadier than a mean.
A warm cache is faster than a cold cache.
"""

NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()
ORDINALS = "first second third fourth fifth sixth seventh eighth".split()


def pairs(text):
    """'a b; c d e' -> [('a', 'b'), ('c d', 'e')]"""
    return [tuple(p.strip().rsplit(" ", 1)) for p in " ".join(text.split()).split(";")]


def lines(text):
    return text.strip().splitlines()


def an(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def cap(s):
    return s[0].upper() + s[1:]


def groups():
    yield [f"The capital of {a} is {b}." for a, b in pairs(CAPITALS)]
    yield [f"The currency of {a} is the {b}." for a, b in pairs(CURRENCIES)]
    yield [f"The main language of {a} is {b}." for a, b in pairs(LANGUAGES)]
    yield [f"{a} is a country in {b}." for a, b in pairs(CONTINENTS)]
    yield [f"The opposite of {a} is {b}." for a, b in pairs(OPPOSITES)]
    yield [f"A young {a} is called {an(b)}." for a, b in pairs(YOUNG)]
    yield [f"{cap(an(a))} says {b}." for a, b in pairs(SOUNDS)]
    yield [f"The chemical symbol for {a} is {b}." for a, b in pairs(SYMBOLS)]
    yield [f"The plural of {a} is {b}." for a, b in pairs(PLURALS)]
    yield [f"The colour of {a} is {b}." for a, b in pairs(COLOURS)]
    yield [f"The day after {a} is {b}." for a, b in zip(DAYS, DAYS[1:] + DAYS[:1])]
    yield [f"The month after {a} is {b}." for a, b in zip(MONTHS, MONTHS[1:] + MONTHS[:1])]
    yield [f"The {o} planet from the Sun is {p}." for o, p in zip(ORDINALS, PLANETS)]
    yield [f"{cap(NUMBERS[a])} plus {NUMBERS[b]} is {NUMBERS[a + b]}." for a in range(1, 6) for b in range(1, 6)]
    yield [f"{cap(NUMBERS[a])} times {NUMBERS[b]} is {NUMBERS[a * b]}." for a in range(2, 5) for b in range(2, 5)]
    yield lines(MISC)
    yield lines(PROFILING)


def main():
    rng = random.Random(20)
    first = "The capital of France is Paris."
    # Spread every group evenly over the file: place fact i of n near (i + u) / n.
    placed = []
    for g in groups():
        g = [f for f in g if f != first]
        rng.shuffle(g)
        placed += [((i + rng.random()) / len(g), f) for i, f in enumerate(g)]
    facts = [first] + [f for _, f in sorted(placed)]
    assert len(set(facts)) == len(facts)
    # The last word must follow from the words before it.
    prompts = [f.rsplit(" ", 1)[0] for f in facts]
    assert len(set(prompts)) == len(prompts), "two facts share a prompt"
    Path(__file__).with_name("facts.txt").write_text("\n".join(facts) + "\n")
    print(len(facts), "facts")


if __name__ == "__main__":
    main()
