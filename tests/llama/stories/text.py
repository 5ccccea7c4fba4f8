# SPDX-License-Identifier: MIT OR Apache-2.0
"""Short stories for children, made from templates: the text that the demo's model is trained on."""

import random

ANIMALS = [
    ("fox", "den"),
    ("rabbit", "burrow"),
    ("bear", "cave"),
    ("bird", "nest"),
    ("mouse", "hole"),
    ("frog", "pond"),
    ("cat", "house"),
    ("duck", "lake"),
]
SHE = ["Mia", "Lily", "Anna", "Rosa", "Emma", "Nora"]
HE = ["Tom", "Ben", "Max", "Leo", "Sam", "Finn"]
TRAITS = ["brave", "kind", "clever", "curious", "shy", "cheerful"]
PLACES = ["forest", "garden", "valley", "village", "meadow"]
LOST = ["red ball", "blue hat", "warm scarf", "little drum", "golden key", "yellow kite"]
SPOTS = [
    "under an old tree",
    "behind a big stone",
    "in the tall grass",
    "near the river",
    "on top of the hill",
]
FOOD = ["berries", "apples", "honey cake", "warm soup", "sweet bread"]
DAYS = ["One sunny day", "One cold morning", "One rainy day", "One quiet evening"]


def story(choice: random.Random) -> str:
    """One story of some ten sentences."""
    pick = choice.choice
    heroine = pick([True, False])
    she, her, name = ("She", "her", pick(SHE)) if heroine else ("He", "his", pick(HE))
    friend = pick(HE if heroine else SHE)
    (animal, home), (other, _) = choice.sample(ANIMALS, 2)
    trait, place, thing, spot, food = map(pick, (TRAITS, PLACES, LOST, SPOTS, FOOD))
    opening = pick(
        [
            f"Once upon a time there was a little {animal} named {name}.",
            f"There once was a {trait} little {animal}. {she} was called {name}.",
        ]
    )
    life = [
        f"{name} was very {trait}.",
        f"{she} lived in a {home} near the {place}.",
        f"Every day {name} played with {her} {thing}.",
        f"{she} liked to eat {food}.",
        f"{her.capitalize()} best friend was a {other} named {friend}.",
    ]
    life = choice.sample(life[:-1], 3) + life[-1:]
    trouble = pick(
        [
            f"{pick(DAYS)} {name} could not find {her} {thing}. {she} looked everywhere and began "
            f"to cry.",
            f"{pick(DAYS)} the wind took the {thing} away. {name} was very sad.",
        ]
    )
    help = pick(
        [
            f'"Do not be sad," said {friend} the {other}. "We will look for it together."',
            f'{friend} asked, "Why are you sad?" {name} said, "I lost my {thing}."',
        ]
    )
    search = pick(
        [
            f"They walked through the {place} and looked {spot}.",
            f"So the two friends went into the {place}. They looked {spot}.",
        ]
    )
    found = pick(
        [
            f"There it was! {name} was so happy that {she.lower()} danced.",
            f'"Here it is!" said {friend}. {name} laughed and jumped for joy.',
        ]
    )
    ending = pick(
        [
            f"Then they went home and ate {food}.",
            f"In the evening they ate {food} and told stories.",
            f"{name} thanked {friend}, and they were friends forever.",
        ]
    )
    return " ".join([opening, *life, trouble, help, search, found, ending])


def stories(seed: int, count: int) -> list[str]:
    choice = random.Random(seed)
    return [story(choice) for _ in range(count)]
