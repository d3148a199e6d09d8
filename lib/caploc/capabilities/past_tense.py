"""Past tenses of verbs, regular and irregular."""

from caploc.capabilities.word_pairs import word_pair_family

SHOTS = (("walk", "walked"), ("go", "went"))

VERBS = (
    ("become", "became"), ("begin", "began"), ("bend", "bent"), ("bite", "bit"), ("blow", "blew"),
    ("break", "broke"), ("bring", "brought"), ("build", "built"), ("buy", "bought"), ("catch", "caught"),
    ("choose", "chose"), ("come", "came"), ("creep", "crept"), ("deal", "dealt"), ("dig", "dug"),
    ("do", "did"), ("draw", "drew"), ("drink", "drank"), ("drive", "drove"), ("eat", "ate"),
    ("fall", "fell"), ("feed", "fed"), ("feel", "felt"), ("fight", "fought"), ("find", "found"),
    ("fly", "flew"), ("forget", "forgot"), ("freeze", "froze"), ("get", "got"), ("give", "gave"),
    ("grow", "grew"), ("have", "had"), ("hear", "heard"), ("hide", "hid"), ("hold", "held"),
    ("keep", "kept"), ("know", "knew"), ("lead", "led"), ("leave", "left"), ("lend", "lent"),
    ("lose", "lost"), ("make", "made"), ("mean", "meant"), ("meet", "met"), ("pay", "paid"),
    ("ride", "rode"), ("ring", "rang"), ("rise", "rose"), ("run", "ran"), ("say", "said"), ("see", "saw"),
    ("seek", "sought"), ("sell", "sold"), ("send", "sent"), ("shake", "shook"), ("shoot", "shot"),
    ("sit", "sat"), ("sleep", "slept"), ("speak", "spoke"), ("spend", "spent"), ("stand", "stood"),
    ("steal", "stole"), ("swear", "swore"), ("sweep", "swept"), ("swim", "swam"), ("take", "took"),
    ("teach", "taught"), ("tear", "tore"), ("tell", "told"), ("think", "thought"), ("throw", "threw"),
    ("understand", "understood"), ("wake", "woke"), ("wear", "wore"), ("win", "won"), ("write", "wrote"),
    ("agree", "agreed"), ("allow", "allowed"), ("arrive", "arrived"), ("ask", "asked"), ("bake", "baked"),
    ("call", "called"), ("carry", "carried"), ("change", "changed"), ("clean", "cleaned"),
    ("climb", "climbed"), ("cook", "cooked"), ("cry", "cried"), ("dance", "danced"), ("decide", "decided"),
    ("drop", "dropped"), ("enjoy", "enjoyed"), ("follow", "followed"), ("help", "helped"),
    ("hope", "hoped"), ("hurry", "hurried"), ("jump", "jumped"), ("laugh", "laughed"), ("learn", "learned"),
    ("like", "liked"), ("listen", "listened"), ("live", "lived"), ("look", "looked"), ("love", "loved"),
    ("marry", "married"), ("move", "moved"), ("need", "needed"), ("offer", "offered"), ("open", "opened"),
    ("paint", "painted"), ("plan", "planned"), ("play", "played"), ("push", "pushed"),
    ("reach", "reached"), ("start", "started"), ("stop", "stopped"), ("study", "studied"),
    ("talk", "talked"), ("travel", "traveled"), ("try", "tried"), ("turn", "turned"), ("visit", "visited"),
    ("wait", "waited"), ("want", "wanted"), ("wash", "washed"), ("watch", "watched"), ("work", "worked"),
)  # fmt: skip

FAMILY = word_pair_family(
    "past_tense",
    "the past tense of a verb, after two examples",
    pattern="Today I {word}. Yesterday I {answer}.",
    shots=SHOTS,
    pairs=VERBS,
)
