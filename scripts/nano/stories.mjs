// Tiny stories: a child or an animal, a wish, a small trouble, a good end.
const names =
  "Tom Lily Ben Anna Max Mia Sam Lucy Leo Emma Jack Ella Tim Rosa Finn Nora Paul Ida Oscar Clara".split(" ");
const animals = "dog cat rabbit fox bear mouse duck frog bird horse goat owl".split(" ");
const traits = "little kind brave happy clever quiet funny curious small friendly".split(" ");
const things = "ball book kite hat boat cake drum lamp box bell map cup flower stone shell".split(" ");
const colors = "red blue green yellow white black brown pink".split(" ");
const places = [
  "in the garden",
  "in the forest",
  "by the river",
  "at the beach",
  "on the hill",
  "in the park",
  "near the old house",
  "in the village",
  "at school",
  "on the farm",
];
const weather = [
  "The sun was warm.",
  "It was raining.",
  "The wind was cold.",
  "The sky was blue.",
  "It was a quiet day.",
  "Snow was falling.",
];
const troubles = [
  ["lost the %t", "looked everywhere", "found it under a tree"],
  ["dropped the %t into the water", "asked a fisherman for help", "got it back"],
  ["broke the %t", "felt very sad", "made a new one"],
  ["forgot the %t at home", "ran all the way back", "came just in time"],
  ["saw that the %t was gone", "followed the tracks", "met a hungry mouse that had it"],
  ["could not reach the %t", "climbed on a chair", "took it down with care"],
  ["wanted to share the %t", "called all the friends", "played until the evening"],
];
const ends = [
  "Everyone was happy.",
  "They went home and slept well.",
  "It was the best day of the year.",
  "They laughed and had some cake.",
  "From then on they were good friends.",
  "The end.",
];
const talk = [
  "Can I help you?",
  "What a nice day!",
  "Please come with me.",
  "Look at this!",
  "Do not be sad.",
  "Let us play.",
  "Thank you so much!",
];

/** One story of three to eight sentences. */
export function storyDocument(random) {
  const name = random.pick(names);
  let friend = random.pick(names);
  while (friend === name) friend = random.pick(names);
  const animal = random.pick(animals);
  const thing = random.pick(things);
  const color = random.pick(colors);
  const hero = random.chance(0.6) ? name : `the ${animal}`;
  const opening =
    hero === name
      ? `${name} was a ${random.pick(traits)} child`
      : `There was a ${random.pick(traits)} ${animal}`;
  const [trouble, attempt, outcome] = random.pick(troubles);
  const Hero = hero[0].toUpperCase() + hero.slice(1);
  const sentences = [
    `${random.chance(0.4) ? "Once upon a time, " : ""}${opening}.`.replace(/, (There)/, ", there"),
  ];
  if (random.chance(0.6)) sentences.push(`${Hero} lived ${random.pick(places)}.`);
  sentences.push(`One day ${hero} had a ${color} ${thing}.`);
  if (random.chance(0.5)) sentences.push(random.pick(weather));
  sentences.push(`Then ${hero} ${trouble.replace("%t", thing)}.`);
  if (random.chance(0.5)) sentences.push(`"${random.pick(talk)}" said ${friend}.`);
  sentences.push(`${Hero} ${attempt} and ${outcome}.`);
  sentences.push(random.pick(ends));
  return `${sentences.join(" ")}\n`;
}
