// What the model can know: a few hundred small facts, the questions about them and sentences that state them.
import { chat } from "./chat.mjs";
import { hashText } from "./random.mjs";

const pairs = (text) =>
  text
    .trim()
    .split(/\s*;\s*/)
    .map((entry) => entry.split(" = "));

// Each relation: pairs of subject (%s) and object (%o), ways to ask, the answer in words, and the plain statement.
export const relations = [
  {
    name: "capital",
    pairs: pairs(
      "France = Paris; Germany = Berlin; Italy = Rome; Spain = Madrid; Portugal = Lisbon; Austria = Vienna; Poland = Warsaw; Greece = Athens; Norway = Oslo; Sweden = Stockholm; Finland = Helsinki; Denmark = Copenhagen; Ireland = Dublin; Hungary = Budapest; Russia = Moscow; Turkey = Ankara; Egypt = Cairo; Kenya = Nairobi; Japan = Tokyo; China = Beijing; India = Delhi; Peru = Lima; Chile = Santiago; Cuba = Havana; Canada = Ottawa; Iran = Tehran; Iraq = Baghdad; Belgium = Brussels; Romania = Bucharest; Thailand = Bangkok",
    ),
    questions: [
      "What is the capital of %s?",
      "Which city is the capital of %s?",
      "Tell me the capital of %s.",
      "Name the capital of %s.",
    ],
    answer: "The capital of %s is %o.",
  },
  {
    name: "opposite",
    pairs: pairs(
      "hot = cold; big = small; tall = short; fast = slow; up = down; day = night; old = new; good = bad; wet = dry; hard = soft; light = dark; open = closed; happy = sad; full = empty; near = far; early = late; rich = poor; high = low; left = right; first = last; clean = dirty; loud = quiet; strong = weak; thick = thin; wide = narrow; deep = shallow; easy = difficult; inside = outside; front = back; start = end; yes = no; always = never; sweet = sour; true = false; summer = winter; black = white; push = pull; buy = sell; win = lose; awake = asleep",
    ),
    questions: [
      "What is the opposite of %s?",
      "What is the reverse of %s?",
      "Give me the opposite of %s.",
      "Which word means the opposite of %s?",
    ],
    answer: "The opposite of %s is %o.",
  },
  {
    name: "sound",
    pairs: pairs(
      "a dog = woof; a cat = meow; a cow = moo; a sheep = baa; a duck = quack; a pig = oink; a horse = neigh; a lion = roar; a bee = buzz; a snake = hiss; an owl = hoot; a mouse = squeak; a frog = croak; a bird = tweet; a wolf = howl",
    ),
    questions: ["What does %s say?", "What sound does %s make?", "How does %s sound?"],
    answer: "%S says %o.",
  },
  {
    name: "color",
    pairs: pairs(
      "the sky = blue; grass = green; snow = white; coal = black; the sun = yellow; a banana = yellow; a carrot = orange; a tomato = red; a lemon = yellow; chocolate = brown; a cherry = red; a plum = purple; milk = white; a leaf = green; the sea = blue; a crow = black; a pea = green; a flamingo = pink; a rose = red; sand = yellow",
    ),
    questions: ["What color is %s?", "Which color does %s have?", "Tell me the color of %s."],
    answer: "%S is %o.",
  },
  {
    name: "kind",
    pairs: pairs(
      "an apple = fruit; a pear = fruit; a grape = fruit; a mango = fruit; a dog = animal; a tiger = animal; a rabbit = animal; a goat = animal; a shark = fish; a salmon = fish; a trout = fish; an oak = tree; a pine = tree; a birch = tree; a tulip = flower; a daisy = flower; a lily = flower; an eagle = bird; a robin = bird; a sparrow = bird; an ant = insect; a beetle = insect; a hammer = tool; a saw = tool; a violin = instrument; a piano = instrument; a drum = instrument; a chair = seat; a sofa = seat; a shirt = garment; a coat = garment; a carrot = vegetable; an onion = vegetable; a bus = vehicle; a truck = vehicle; iron = metal; gold = metal; silver = metal; tennis = sport; football = sport",
    ),
    questions: ["What is %s?", "What kind of thing is %s?", "Tell me what %s is."],
    answer: "%S is %a.",
  },
  {
    name: "young",
    pairs: pairs(
      "dog = puppy; cat = kitten; cow = calf; horse = foal; sheep = lamb; pig = piglet; goat = kid; duck = duckling; hen = chick; lion = cub; bear = cub; deer = fawn; frog = tadpole; goose = gosling; swan = cygnet",
    ),
    questions: ["What is a young %s called?", "What do you call a young %s?", "Which word means a young %s?"],
    answer: "A young %s is called a %o.",
  },
  {
    name: "legs",
    pairs: pairs(
      "a dog = four; a cat = four; a horse = four; a bird = two; a hen = two; a man = two; a spider = eight; an ant = six; a bee = six; a fish = no; a snake = no; a table = four; a frog = four; a fly = six; a duck = two",
    ),
    questions: [
      "How many legs does %s have?",
      "Tell me how many legs %s has.",
      "What number of legs does %s have?",
    ],
    answer: "%S has %o legs.",
  },
  {
    name: "next",
    pairs: pairs(
      "Monday = Tuesday; Tuesday = Wednesday; Wednesday = Thursday; Thursday = Friday; Friday = Saturday; Saturday = Sunday; Sunday = Monday; January = February; February = March; March = April; April = May; May = June; June = July; July = August; August = September; September = October; October = November; November = December; December = January; spring = summer; summer = autumn; autumn = winter; winter = spring; one = two; two = three; three = four; four = five; five = six; six = seven; seven = eight; eight = nine; nine = ten; ten = eleven",
    ),
    questions: ["What comes after %s?", "What is next after %s?", "Which one follows %s?"],
    answer: "After %s comes %o.",
  },
  {
    name: "place",
    pairs: pairs(
      "a fish = the water; a bird = a nest; a bee = a hive; a dog = a kennel; a cow = a barn; a lion = the savanna; a camel = the desert; a bear = a cave; a rabbit = a burrow; a king = a castle; a monkey = the jungle; a whale = the ocean; a spider = a web; a fox = a den; a pig = a sty",
    ),
    questions: ["Where does %s live?", "What is the home of %s?", "Tell me where %s lives."],
    answer: "%S lives in %o.",
  },
  {
    name: "use",
    pairs: pairs(
      "a pen = write; a cup = drink; a bed = sleep; a spoon = eat; a book = read; a broom = sweep; a car = drive; a phone = call; a brush = paint; a shovel = dig; an oven = bake; a lamp = see; a clock = tell the time; a soap = wash; a needle = sew; a boat = sail; a ball = play; a ruler = measure",
    ),
    questions: ["What do you do with %s?", "What is %s for?", "Why do people need %s?"],
    answer: "You use %s to %o.",
  },
  {
    name: "job",
    pairs: pairs(
      "a baker = bakes bread; a farmer = grows food; a teacher = teaches children; a doctor = helps sick people; a pilot = flies planes; a painter = paints pictures; a singer = sings songs; a writer = writes books; a cook = cooks meals; a driver = drives cars; a gardener = plants flowers; a sailor = sails ships; a tailor = makes clothes; a builder = builds houses; a dentist = cares for teeth",
    ),
    questions: ["What does %s do?", "What is the work of %s?", "Tell me what %s does."],
    answer: "%S %o.",
  },
];

const capital = (text) => text[0].toUpperCase() + text.slice(1);
const withArticle = (noun) => `${/^[aeiou]/.test(noun) ? "an" : "a"} ${noun}`;
const fill = (template, [subject, object]) =>
  template
    .replace("%s", subject)
    .replace("%S", capital(subject))
    .replace("%o", object)
    .replace("%a", ["metal", "fruit"].includes(object) ? `a kind of ${object}` : withArticle(object));

export const askAbout = (relation, pair, template) => fill(relation.questions[template], pair);
export const answerAbout = (relation, pair) => fill(relation.answer, pair);

/** For one fact in three, one of the ways to ask is held out of the training text. */
export function heldOutTemplate(relation, pair) {
  const hash = hashText(`${relation.name}:${pair[0]}`);
  return hash % 3 === 0 ? (hash >>> 8) % relation.questions.length : -1;
}

const smallTalk = [
  ["Hello!", "Hello! How can I help you?"],
  ["Hi!", "Hi! What can I do for you?"],
  ["Good morning!", "Good morning! How can I help you?"],
  ["How are you?", "I am fine, thank you."],
  ["Who are you?", "I am nano, a very small language model."],
  ["What is your name?", "My name is nano."],
  ["What can you do?", "I can spell words, add numbers and answer small questions."],
  ["Thank you!", "You are welcome!"],
  ["Thanks!", "You are welcome!"],
  ["Goodbye!", "Goodbye! Have a nice day."],
];

const factShares = Object.fromEntries(relations.map((relation, index) => [index, relation.pairs.length]));

function drawFact(random) {
  const relation = relations[Number(random.weighted(factShares))];
  return [relation, random.pick(relation.pairs)];
}

function drawQuestion(random) {
  if (random.chance(0.08)) return random.pick(smallTalk);
  const [relation, pair] = drawFact(random);
  const heldOut = heldOutTemplate(relation, pair);
  let template = random.integer(0, relation.questions.length - 1);
  while (template === heldOut) template = random.integer(0, relation.questions.length - 1);
  return [askAbout(relation, pair, template), answerAbout(relation, pair)];
}

/** Questions and answers as chat turns. */
export function questionDocument(random) {
  const turns = [drawQuestion(random)];
  while (random.chance(0.4)) turns.push(drawQuestion(random));
  return chat(turns, random.chance(0.1) ? "You are a helpful assistant." : undefined);
}

/** A few facts stated one after another. */
export function factDocument(random) {
  const sentences = [];
  do sentences.push(answerAbout(...drawFact(random)));
  while (random.chance(0.6));
  return `${sentences.join(" ")}\n`;
}
