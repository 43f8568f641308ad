"""The 1,100 texts of the MiniLM golden data: 100 queries and ten passages for each.

Written by a grammar from keyword lists of our own, the same on every machine for one Python
(random.Random with a fixed seed). Each passage names its topic somewhere, so that a query's ten
passages stand apart from the other 990 and the tenth place of a ranking is not a toss-up between
near ties. Eighty topics are English, twelve are in other languages and scripts, eight are source
code. Passages have 2 to 400 words, evenly spread in the logarithm, queries 1 to 12; some carry
typographic noise (capitals, numbers, emoji, combining accents, repeated spaces, tabs, very long
words).
"""

import random

ENGLISH = """
volcanoes: magma, lava, eruption, crater, ash cloud, tectonic plate, basalt, geyser
bread baking: sourdough, yeast, flour, kneading, oven, crust, dough, fermentation
chess: knight, opening, checkmate, endgame, pawn structure, bishop, rook, grandmaster
bees: hive, honey, pollen, queen bee, worker bee, nectar, beekeeper, swarm
solar power: photovoltaic panel, inverter, sunlight, rooftop array, battery storage, watt, grid, silicon cell
medieval castles: moat, drawbridge, keep, battlement, siege, tower, knight, stone wall
coral reefs: polyp, bleaching, tropical fish, algae, lagoon, snorkelling, atoll, sea temperature
railways: locomotive, track gauge, signal box, timetable, freight wagon, steam engine, station, sleeper
mortgages: interest rate, lender, down payment, refinance, principal, credit score, fixed term, escrow
photography: aperture, shutter speed, lens, exposure, tripod, portrait, focal length, darkroom
diabetes: insulin, glucose, pancreas, blood sugar, diet, metformin, type two, carbohydrate
football: goalkeeper, penalty, striker, offside, league, midfield, corner kick, referee
jazz: saxophone, improvisation, swing, trumpet, quartet, blues, bebop, rhythm section
gardening roses: pruning, thorn, compost, blossom, aphid, mulch, climbing rose, fertiliser
databases: index, transaction, query planner, table, primary key, replication, isolation level, schema
black holes: event horizon, singularity, accretion disk, gravity, galaxy centre, hawking radiation, spacetime, collapse
coffee: espresso, roast, arabica bean, grinder, crema, barista, caffeine, filter
tax returns: deduction, income, filing deadline, refund, allowance, withholding, accountant, audit
vaccination: immune response, antibody, booster dose, measles, syringe, herd immunity, side effect, clinic
sailing: mast, jib, tacking, keel, harbour, wind direction, rigging, regatta
origami: paper crane, valley fold, crease, square sheet, mountain fold, model, diagram, folding base
elephants: trunk, tusk, herd, savanna, ivory poaching, calf, matriarch, waterhole
opera: soprano, aria, libretto, orchestra pit, tenor, overture, stage set, composer
bicycles: derailleur, chain, spoke, handlebar, brake pad, saddle height, inner tube, gear ratio
glaciers: ice sheet, moraine, crevasse, meltwater, fjord, calving, snowfall, retreat
divorce law: custody, alimony, settlement, court hearing, mediation, spouse, property division, petition
astronauts: space station, spacewalk, microgravity, launch pad, capsule, orbit, spacesuit, re-entry
cheese: rennet, curd, cheddar, ageing cave, mould rind, goat milk, whey, brine
dinosaurs: fossil, tyrannosaurus, extinction, herbivore, sediment, skeleton, cretaceous, footprint
electric cars: charging station, battery range, motor torque, kilowatt hour, regenerative braking, plug, charger, emissions
yoga: posture, breathing, meditation, flexibility, mat, sun salutation, balance, instructor
earthquakes: fault line, seismograph, aftershock, magnitude, epicentre, tsunami, building code, tremor
shakespeare: hamlet, sonnet, tragedy, globe theatre, soliloquy, playwright, macbeth, stratford
wine: vineyard, tannin, cork, vintage, grape harvest, barrel, sommelier, bouquet
machine learning: neural network, gradient descent, training set, overfitting, loss function, classifier, embedding, regularisation
owls: nocturnal, talon, silent flight, barn owl, pellet, nest box, hoot, prey
passports: visa, border control, expiry date, embassy, consulate, biometric photo, renewal form, immigration
knitting: needle, yarn, purl stitch, wool, cast on, scarf, pattern gauge, cable knit
rainforests: canopy, biodiversity, deforestation, amazon basin, monsoon, orchid, jaguar, undergrowth
swimming: freestyle, butterfly stroke, lane, goggles, breaststroke, pool length, kick, flip turn
plumbing: leaking tap, pipe wrench, drain, water heater, valve, sewage, solder joint, toilet cistern
typography: serif, kerning, typeface, line height, ligature, baseline, font weight, letterpress
cricket: wicket, bowler, innings, batsman, over, spin bowling, umpire, test match
pandas: bamboo, cub, sichuan, zoo, black and white fur, habitat reserve, thumb bone, conservation
aviation: runway, cockpit, jet engine, altitude, air traffic control, turbulence, landing gear, wing flap
chocolate: cocoa bean, tempering, truffle, dark chocolate, cacao butter, conching, confectioner, praline
insurance claims: premium, policy holder, deductible, liability, adjuster, coverage, accident report, compensation
asthma: inhaler, wheezing, bronchial tube, allergen, steroid, peak flow, attack, lung
pottery: kiln, clay, glaze, potter wheel, ceramic, porcelain, slip, firing temperature
submarines: periscope, ballast tank, sonar, torpedo, hull pressure, nuclear reactor, dive depth, crew quarters
maps: contour line, scale bar, projection, latitude, cartographer, legend, atlas, survey
skiing: slope, ski lift, powder snow, binding, slalom, avalanche, mogul, alpine resort
blockchain: ledger, mining, consensus, hash, wallet, smart contract, node, token
horses: stable, gallop, saddle, bridle, foal, hoof, dressage, mare
sleep: insomnia, rem phase, melatonin, mattress, circadian rhythm, dream, nap, snoring
bridges: suspension cable, arch span, pylon, load bearing, deck, cantilever, girder, river crossing
tea: green tea, oolong, kettle, steeping time, tea leaf, teapot, matcha, black tea
orchestras: conductor, violin, symphony, cello, concert hall, rehearsal, woodwind, percussion
penguins: antarctica, colony, krill, emperor penguin, flipper, egg incubation, ice shelf, feather
recycling: plastic bottle, landfill, glass jar, sorting plant, aluminium can, waste paper, bin collection, reuse
teeth: cavity, dentist, enamel, fluoride, root canal, gum disease, brace, toothbrush
job interviews: resume, salary negotiation, recruiter, candidate, cover letter, reference, strengths, panel question
satellites: geostationary orbit, antenna, telemetry, navigation signal, solar array, ground station, transponder, constellation
mushrooms: spore, mycelium, toadstool, forest floor, truffle hunting, edible cap, gill, poisonous
roman empire: emperor, legion, senate, aqueduct, gladiator, province, latin, forum
tennis: serve, backhand, grand slam, racket, tie break, clay court, volley, baseline rally
windows repair: double glazing, frame, putty, pane, sash, draught, seal, hinge
dna: chromosome, gene, mutation, double helix, nucleotide, genome sequencing, protein, inheritance
camping: tent, sleeping bag, campfire, backpack, stove, trail, lantern, national park
parliament: legislation, vote, speaker, committee, opposition party, constituency, amendment, debate
dogs: puppy, leash, obedience training, breed, kennel, barking, veterinarian, fetch
tsunami warning: buoy, evacuation route, siren, coastal town, wave height, undersea quake, high ground, drill
lighthouses: lamp, rocky coast, keeper, fog horn, fresnel lens, beacon, shipwreck, tower stairs
cooking rice: basmati, steam, rinse, rice cooker, absorption, grain, risotto, boiling water
prime numbers: factorisation, sieve, divisor, theorem, integer, composite, proof, twin prime
hurricanes: eye wall, storm surge, category five, landfall, wind speed, evacuation, barometer, tropical depression
piano: keyboard, pedal, sonata, tuning, hammer, sheet music, scale practice, grand piano
kidneys: dialysis, nephron, transplant, urine, filtration, creatinine, renal failure, donor
ants: colony, pheromone trail, worker, nest chamber, leafcutter, queen, larva, foraging
printing: inkjet, toner, cartridge, paper jam, resolution, laser drum, colour profile, scanner
"""

OTHER = """
de: Brotbacken: Sauerteig, Hefe, Mehl, Ofen, Kruste, Teig, Backstein, Roggen
de: Eisenbahn: Lokomotive, Bahnhof, Fahrplan, Gleis, Schaffner, Weiche, Güterzug, Verspätung
fr: le vin: vignoble, cépage, tonneau, vendange, bouchon, millésime, dégustation, cave
fr: la montagne: sommet, glacier, randonnée, refuge, sentier, neige, alpiniste, vallée
es: el fútbol: portero, penalti, delantero, gol, árbitro, estadio, liga, entrenador
es: la cocina: aceite, cebolla, sartén, receta, horno, ajo, tortilla, sal
it: la musica: violino, opera, orchestra, pianoforte, canzone, teatro, cantante, concerto
pl: pogoda: deszcz, śnieg, burza, temperatura, wiatr, słońce, chmura, mróz
ru: космос: ракета, спутник, орбита, космонавт, станция, планета, телескоп, звезда
zh: 茶叶: 绿茶, 红茶, 茶壶, 热水, 茶园, 采摘, 香气, 茶杯
ja: 電車: 駅, 切符, 時刻表, 新幹線, 線路, 車掌, 改札, 乗客
ar: القهوة: حبوب, فنجان, تحميص, مطحنة, حليب, سكر, رائحة, مقهى
"""

CODE = """
python: sorting list: sorted_items, compare, key_function, reverse, merge_sort, pivot, partition, stable
python: http server: handler, request, response, status_code, header, route, socket, listen
go: worker pool: channel, goroutine, waitgroup, job, result, semaphore, close, select
go: file reader: scanner, buffer, offset, line, reader, eof, seek, bytes
c: matrix multiply: row, column, stride, accumulate, tile, transpose, block, float
sql: customer orders: customer_id, order_date, total, join, invoice, quantity, product, discount
javascript: button click: element, event, listener, dispatch, target, render, state, component
bash: backup script: archive, directory, rsync, timestamp, compress, restore, cron, logfile
"""

SENTENCES = [
    "The {a} matters more than the {b} for anyone who works with {t}.",
    "Most people who study {t} begin with the {a} and only later meet the {b}.",
    "Without a good {a}, the {b} will not behave as expected.",
    "In {y}, a report on {t} counted {n} cases where the {a} had changed the {b}.",
    "How does the {a} depend on the {b}?",
    "Experts in {t} say the {a} should be checked every {n} days.",
    "She wrote a short guide to {t}, with a chapter on the {a} and another on the {b}.",
    "A {a} next to a {b} is a common sight in {t}.",
    "There are three things to know about {t}: the {a}, the {b}, and patience.",
    "When the {a} fails, look at the {b} first; it is the usual cause.",
    "The history of {t} is also the history of the {a}.",
    "It took {n} attempts before the {a} and the {b} worked together.",
    "Beginners confuse the {a} with the {b}.",
    "Compared with the {b}, the {a} is cheap, simple and easy to find.",
    "Nobody expected the {a} to become so important to {t} by {y}.",
]
LANGUAGE = {
    "de": ["Ohne {a} gibt es keine gute {b}.", "{t}: wichtig sind {a}, {b} und viel Geduld.",
           "Im Jahr {y} war {a} noch selten, heute gehört {b} dazu.", "Wer {t} mag, kennt {a} und {b}."],
    "fr": ["Pour {t}, il faut connaître {a} et {b}.", "Sans {a}, pas de {b}.",
           "En {y}, on parlait déjà de {a} et de {b}.", "Le secret, c'est {a}, puis {b}."],
    "es": ["En {t} importan {a} y {b}.", "Sin {a} no hay {b}.", "En {y} nadie hablaba de {a} ni de {b}.",
           "Primero {a}, después {b}: así funciona {t}."],
    "it": ["Per {t} servono {a} e {b}.", "Senza {a} non c'è {b}.", "Nel {y} si parlava di {a} e di {b}."],
    "pl": ["{t}: dziś {a}, jutro {b}.", "W roku {y} był {a} i {b}.", "Kiedy przychodzi {a}, znika {b}."],
    "ru": ["{t}: важны {a} и {b}.", "В {y} году {a} и {b} стали известны всем.",
           "Без слова {a} нет слова {b}."],
    "zh": ["{t}里最重要的是{a}和{b}。", "{y}年，{a}和{b}都很常见。", "没有{a}就没有{b}。"],
    "ja": ["{t}では{a}と{b}が大切です。", "{y}年には{a}も{b}もありました。", "{a}がなければ{b}もない。"],
    "ar": ["في {t} نحتاج إلى {a} و{b}.", "في عام {y} كان {a} و{b} معروفين.", "لا {a} بدون {b}."],
}
SNIPPETS = {
    "python": ["def {a}({b}, limit={n}):\n    return [{b} for {b} in {a} if {b} > {n}]",
               "# {t}: {a} before {b}", "assert {a}({b}) == {n}"],
    "go": ["func {a}({b} int) error {{\n\tif {b} > {n} {{\n\t\treturn fmt.Errorf(\"{t}: {a} %d\", {b})\n\t}}\n\treturn nil\n}}",
           "// {t}: {a} owns {b}", "go {a}(ctx, {b})"],
    "c": ["for (int {a} = 0; {a} < {n}; ++{a}) {b}[{a}] += {a} * {n};", "/* {t}: {a} then {b} */",
          "static float {a}_{b}[{n}];"],
    "sql": ["SELECT {a}, COUNT(*) FROM {b} WHERE {a} > {n} GROUP BY {a};", "-- {t}: {a} by {b}",
            "UPDATE {b} SET {a} = {n};"],
    "javascript": ["const {a} = ({b}) => {b}.map((x) => x * {n});", "// {t}: {a} and {b}",
                   "document.querySelector('#{a}').{b} = {n};"],
    "bash": ["for {a} in *.{b}; do tar czf \"${a}.tgz\" \"${a}\"; done", "# {t}: {a} the {b}",
             "find . -name '*{a}*' -mtime +{n} -exec {b} {{}} \\;"],
}
QUERIES = ["what is the role of {a} in {t}", "{t} {a}", "how do {a} and {b} work together in {t}?",
           "tell me about {t}", "{t}: {a} versus {b}", "guide to {t} for beginners: {a}, {b}",
           "why is {a} important for {t}", "{t}",]


def topics() -> list[tuple[str, str, list[str]]]:
    """(language, title, keywords), a hundred of them."""
    out = []
    for line in ENGLISH.strip().splitlines():
        title, words = line.split(": ")
        out.append(("en", title, words.split(", ")))
    for line in (OTHER + CODE).strip().splitlines():
        if line:
            language, title, words = line.split(": ")
            out.append((language, title, words.split(", ")))
    assert len(out) == 100, len(out)
    return out


def noise(rng: random.Random, text: str) -> str:
    kind = rng.randrange(12)
    if kind == 0:
        return text.upper()
    if kind == 1:
        return text.replace(" ", "  ").replace(". ", ".\t")
    if kind == 2:
        return text + rng.choice([" 🙂", " 🚀🚀", " (№ 7)", " — “quoted” …", " ½ €100", " e\u0301te\u0301"])
    if kind == 3:
        return rng.choice(["\n\n", "  ", "> ", "- "]) + text
    if kind == 4:
        return text + " https://example.org/" + "-".join(text.lower().split()[:6]) + "?id=" + str(
            rng.randrange(10**6))
    return text


def compose(rng: random.Random, language: str, title: str, words: list[str], length: int) -> str:
    """About `length` words on the topic, at most 400 (a text without spaces counts three characters
    a word)."""
    if length <= 3:
        return f"{title} {rng.choice(words)}"
    if language in SNIPPETS:
        forms, joint = SNIPPETS[language], "\n"
    elif language in LANGUAGE:
        forms, joint = LANGUAGE[language], "" if language in ("zh", "ja") else " "
    else:
        forms, joint = SENTENCES, " "
    parts, count = [], 0
    while count < length:
        a, b = rng.sample(words, 2)
        # The first part, and about every second one after it, names the topic.
        naming = forms if parts and rng.random() < 0.5 else [f for f in forms if "{t}" in f]
        part = rng.choice(naming).format(a=a, b=b, t=title, n=rng.randrange(2, 400),
                                         y=rng.randrange(1850, 2025))
        parts.append(part)
        count += len(part) // 3 if joint == "" else len(part.split())
    text = joint.join(parts)
    return text if joint != " " or len(text.split()) <= 400 else " ".join(text.split()[:400])


def generate(seed: int = 21) -> tuple[list[str], list[str]]:
    """(queries, passages); passages 10·i … 10·i+9 are about query i."""
    rng = random.Random(seed)
    queries, passages = [], []
    for language, title, words in topics():
        a, b = rng.sample(words, 2)
        queries.append((rng.choice(QUERIES) if language in ("en", *SNIPPETS)
                        else rng.choice(["{t} {a}", "{t}: {a}, {b}?"])) .format(t=title, a=a, b=b))
        about = []
        while len(about) < 10:
            length = round(2 * 200 ** rng.random())
            text = noise(rng, compose(rng, language, title, words, length))
            if text not in about:
                about.append(text)
        passages += about
    return queries, passages
