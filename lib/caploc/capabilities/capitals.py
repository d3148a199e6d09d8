"""Capitals of countries.

Left out are capitals that repeat the country's name or are spelled in several ways, and countries
that are seldom written about.
"""

from caploc.capabilities.word_pairs import word_pair_family

SHOTS = (("Peru", "Lima"), ("Mongolia", "Ulaanbaatar"))

CAPITALS = (
    ("France", "Paris"), ("Germany", "Berlin"), ("Italy", "Rome"), ("Spain", "Madrid"),
    ("Portugal", "Lisbon"), ("Ireland", "Dublin"), ("Belgium", "Brussels"), ("Austria", "Vienna"),
    ("Switzerland", "Bern"), ("Denmark", "Copenhagen"), ("Sweden", "Stockholm"), ("Norway", "Oslo"),
    ("Finland", "Helsinki"), ("Iceland", "Reykjavik"), ("Poland", "Warsaw"), ("Hungary", "Budapest"),
    ("Romania", "Bucharest"), ("Bulgaria", "Sofia"), ("Greece", "Athens"), ("Serbia", "Belgrade"),
    ("Croatia", "Zagreb"), ("Slovenia", "Ljubljana"), ("Slovakia", "Bratislava"), ("Albania", "Tirana"),
    ("Estonia", "Tallinn"), ("Latvia", "Riga"), ("Lithuania", "Vilnius"), ("Belarus", "Minsk"),
    ("Russia", "Moscow"), ("Cyprus", "Nicosia"), ("the United Kingdom", "London"),
    ("the Netherlands", "Amsterdam"), ("the Czech Republic", "Prague"), ("Turkey", "Ankara"),
    ("Armenia", "Yerevan"), ("Azerbaijan", "Baku"), ("Iran", "Tehran"), ("Iraq", "Baghdad"),
    ("Syria", "Damascus"), ("Lebanon", "Beirut"), ("Jordan", "Amman"), ("Saudi Arabia", "Riyadh"),
    ("Qatar", "Doha"), ("Oman", "Muscat"), ("Bahrain", "Manama"), ("the United Arab Emirates", "Abu Dhabi"),
    ("Afghanistan", "Kabul"), ("Pakistan", "Islamabad"), ("India", "New Delhi"), ("Nepal", "Kathmandu"),
    ("Bangladesh", "Dhaka"), ("Thailand", "Bangkok"), ("Vietnam", "Hanoi"), ("Cambodia", "Phnom Penh"),
    ("Malaysia", "Kuala Lumpur"), ("Indonesia", "Jakarta"), ("the Philippines", "Manila"),
    ("China", "Beijing"), ("Japan", "Tokyo"), ("South Korea", "Seoul"), ("North Korea", "Pyongyang"),
    ("Taiwan", "Taipei"), ("Uzbekistan", "Tashkent"), ("Australia", "Canberra"),
    ("New Zealand", "Wellington"), ("Egypt", "Cairo"), ("Libya", "Tripoli"), ("Morocco", "Rabat"),
    ("Sudan", "Khartoum"), ("Ethiopia", "Addis Ababa"), ("Somalia", "Mogadishu"), ("Kenya", "Nairobi"),
    ("Uganda", "Kampala"), ("Rwanda", "Kigali"), ("Zambia", "Lusaka"), ("Zimbabwe", "Harare"),
    ("Angola", "Luanda"), ("Ghana", "Accra"), ("Nigeria", "Abuja"), ("Senegal", "Dakar"),
    ("Liberia", "Monrovia"), ("Canada", "Ottawa"), ("Cuba", "Havana"), ("Jamaica", "Kingston"),
    ("Haiti", "Port-au-Prince"), ("the Dominican Republic", "Santo Domingo"), ("the Bahamas", "Nassau"),
    ("Nicaragua", "Managua"), ("Venezuela", "Caracas"), ("Ecuador", "Quito"), ("Chile", "Santiago"),
    ("Argentina", "Buenos Aires"), ("Uruguay", "Montevideo"),
)  # fmt: skip

FAMILY = word_pair_family(
    "capitals",
    "the capital of a country, after two examples",
    pattern="Country: {word}. Capital: {answer}",
    shots=SHOTS,
    pairs=CAPITALS,
)
