// A selection from SCOWL's lists of common English words. SCOWL is Copyright 2000-2011 by Kevin Atkinson. Permission to
// use, copy, modify, distribute and sell these word lists, the associated scripts, the output created from the scripts,
// and its documentation for any purpose is hereby granted without fee, provided that the above copyright notice appears
// in all copies and that both that copyright notice and this permission notice appear in supporting documentation. Kevin
// Atkinson makes no representations about the suitability of this array for any purpose. It is provided "as is" without
// express or implied warranty.

const list = (text: string) => text.trim().split(/\s+/);

/** Never trained on; the base model's word games did not have them either. */
export const heldOutWords: readonly string[] = list(`
  advent alpha amaze arrange beat became below biscuit block board brand came campaign chain charm chew cold
  come database declare delta differ drive duty ease edit firmly game gateway hat hot inch inner invite
  jargon last library lifetime lunch many media meet modern modified mood movement notice observe ought own
  paradise penny period plaster plural pole quarter quit ran reign relation ring route scarlet sense
  separate serve singular slogan smash solution somewhat sound spent spray spy square state stream support
  synonym taxpayer threat ticket tidy tongue too trick truck vector vendor void vowel wall weather wheel
  will wire worth year
`);

export const trainingWords: readonly string[] = list(`
  able absolute abstract accent accident account accuracy accurate achieve acquire across action active
  activity actor actual adequate adjust adopt adoption advice advocate aerial affair afford again age agency
  ago agony aid air aircraft alarm album alert algebra alias alien alliance ally alone alphabet already
  always amber among analog analysis analyst anatomy ancient and anecdote anger annoy anorak answer antique
  any anyway anywhere apparent appeal appendix applause apple approval approve area argument arise arm
  around array arrive arrow article ask asleep assembly asset assign assure attach attempt attend attitude
  attorney audience aunt away awful awkward axiom baby backbone backlog badly baffle balance ballet ballot
  banana bang bank bark baroque barrel bash basis bat bathroom bay beach beast beauty because bed bedroom
  beef been before began begin behalf behave behavior being belief bell beloved bend besides beta beyond big
  binary biology birthday bishop bite bizarre blade blank blast blessing blind blink blow blue boat bob boil
  bond book bookshop boot bore boredom borrow boss bottle bottom bound boundary box boy bracket brake branch
  brass breach bread break brick brief briefly brigade bright broke brought brown brush bubble buck bucket
  budget buffer build built bulk bulletin bunch bundle buried burn business busy buy bypass cabbage cable
  cage cake calculus call campus cannot capacity captain capture car care careful carpet carried carrot
  cartoon cash cassette casual catalog catch category cattle cave caveat central ceremony chalk chamber
  champion change channel chapel chapter char cheek cheese chemical chess chest chestnut children choice
  choir chop chord chunk cinema cite city clash classic clean clear client clinic clip clique clock clog
  closely closet clue coach coal coffee colony color column comedy comfort comment compare complete complex
  compose compound compress con concern concrete confirm conflict confuse connect consider consist console
  constant contain content contest continue contrast convince cope copied copy core corn correct corridor
  cost counsel country cover coverage craft crawl cream create creation crisis crisp critical crop crunch
  cry crystal cue culprit cup cupboard curious current curry cursor curtain curve custard cut cyclist
  cylinder daily damp darkness darling data date datum daytime deal dealt dear debate debt decade decay deck
  decrease dedicate deem default delete deletion delight density depend deputy desert desire desk desktop
  despair develop device devise dialog diameter dictate dictator did diesel digit dignity diner director
  dirt dirty disaster discard disguise disk dislike disorder disposal distance distant distinct district
  disturb division document dodge doe dog dollar domain domestic dominant donation dose doubtful down draft
  dragon drain drama draw drew drift drill drink drip drivel drop drowning duck dumb dust dustbin each ear
  early easiest east easy eat eaten economic egg eight eighteen elect electric electron elite elitist
  emphasis employ emulator enable end energy enough enter entire entirely entirety entrance epic equality
  equally equation error estate eternity even event ever everyone evidence exact example exchange exclude
  exercise exotic expense exposure express eyesight fabric face fact fail faint fair fairness fairy fallacy
  family famous fan fancy far farce farther fashion faucet fear feasible feedback feel fell felt feminist
  fence fender few fiber fiddle fifteen fifth fight fill film final finally finance find firework first
  fiscal fit fix flesh flew flexible flight float flow flown flush foam font food footnote forecast forgot
  fork form formal fortune forty forward four fraction fragment freedom freely french frequent fresh from
  front frown fry fudge fuel fume fun funny fur further fusion fuss future galaxy gap garage gas gave gear
  gender generic genius genuine giant gig gin girl give given glance glass global glory glossy glove glow
  gnome golf gospel gotten grab grace grant graphic grass grateful grave gravity great greatly greed green
  grew grind grip ground group growth guess guest guidance guide guinea guitar gulf gutter guy had happen
  happily hardly hardware harmless harmony has hassle have hazard head healthy heap hear heart heat heaven
  heavily heel height helmet help helpful her here hereby heritage high highly hint hire his history hit
  hobby hold holiday hollow home honesty hope horizon horn horrible horror horse hospital hostile hotel
  house how humor hundred hurry hydrogen hyphen icon identify idiom ignore illness image impact imperial
  impose improve impulse incident increase indeed indicate industry inertia inferior infinity info inform
  initial initiate injury innocent inquiry insert insight insist instinct intake interact interest intimate
  into invalid ion iron irony item its itself jack jacket jam jeans jelly jest jolly journal journey judge
  jungle junior junk jury justice justify keen keep ken kettle kick kid kidney kind kindness kitchen knight
  lack lad lag lark laser laugh lavatory lawyer lay laziness lazy leach leak leap leave lecture led leg
  legend leisure lend lesbian level liaison license lie lift like likely link listen literal live load local
  lodge logical logo long loophole lose loss lost love low luck lucky luggage lying lyric made madness
  mailbox main maintain maize major male manage mandate mangle mankind manpower manual map march margin
  marriage marry mask massive master match mate material matrix maximum maze meant measure mechanic medical
  member mercury mere met metal metaphor metro midday midnight might mild mile military mill mind mine
  minimum minor minority mint miracle misery mislead misled misprint miss mission mistook misuse mix mixture
  mnemonic mobile mod mode model module moment moral more mother motion motor motorway motto mount mountain
  mouse movie much muck mud muddle multiple mumble muscle museum music musical musician mystery mystic myth
  nail naive namely narrow national native nature nay near nearby nearly needle neither nervous nest network
  never next night nine noble node noise noisy noon norm normal north nose not notable notation note notify
  novelty numerous nurse oar obscure obvious occasion occupy occur odd off offense official offset old
  omission one onto opera operator opinion optional orange orbit order orient oriental origin other out
  outline outlook output outset over overall overhead override overtime overtone oxygen pacifier packet page
  paid pain painful palace pant parade paradox paranoia pardon parent parity parrot partly partner party
  pass passion paste pat patent pattern pause peak peanut peasant peculiar pedant pedantry pencil per
  perfect perform pet petrol pharmacy phase photo physic piano picture piece pigeon pilot pin pinch pink
  pint pipe pipeline pitch pitfall pity pizza plain plan plant plastic plate platform pleasant pleasure
  plenty plot ploy pocket poem point poke police pool port pose possibly post postage potato poverty
  practice praise prayer precise preface prefix premium preserve pressure presume pretty preview previous
  price pride primary prime prince prior priority privacy prize process produce profile program promptly
  prone proper properly prophet propose prose protocol prove provide pudding pulp pun punch purge purple put
  putt quality quantum queen query queue quick quite quota rack racket radical radius rage raid rain rainbow
  ram random randomly rare rate rather ratio ray razor react reality receipt recent recently record recover
  recovery recruit recycle red reduce regime regular relate relative release relevant relief remark remember
  remind remotely render repeat reply request research reset resident resist respect respond response rest
  restrict result resume retail retain retrieve return reuse reveal revenue reverse revolt reward rewrite
  rhyme rhythm ribbon rice rid right risk river robot rod romance roof root rope rose rot row royal ruin
  rumor rush sack sad safe safety said sail salary sale salesman same sand sarcasm sat satire satisfy sauce
  save saw scan scarf scenery scheme school science score scotch scratch scream screen script scroll seat
  second secondly sect sector security see seek seem segment self seminar send sensible sensibly sent
  serious servant service session set several shake shall shape share she shelf shelter shine ship shock
  shoe shop shot shout show shut shy side sigh sign signal silence silly simple simply since single sink
  sister site sixteen sixth sixty sketch skin skip sky slag slash sleep slide slip slow slowly smart smell
  smith smoke sniff soap social sock sod soft sold sole solely solo solve someone son song sorry sought soul
  source spare specific specify specimen speed spell spend sphere spike spill spiral spirit spite sponsor
  spool spur stable stair stance stand start station status steady steel steer stem sterling stick stir
  stole stood stop store story strange strategy strength strict strictly strong strongly struck studio study
  stumble subset subtlety subway succeed success such suddenly suffer suffice sugar suggest suit suitable
  suitably suite sun sunlight sunrise superior supplied supply surface surgery surplus surprise survival
  suspect swallow swamp swap swim switch sword sympathy symphony system tab table tackle tactic tag tailor
  take talent tangent tank target task tax taxi teach team teapot tear teeth temper temple ten tennis tense
  term terminal terribly test text than that theater their theme theology theory thereby they thick third
  this those thousand thread threw throat through thrown thumb thus tick tiger tin tire title toad toast
  today toe together toggle token tomato tomorrow ton tonight tool tooth top topic toss total totally touch
  tourist toward trace traffic tragedy train tray tread treaty trek trendy trial triangle tribe tried trifle
  triple trolley trouser true trumpet trust try tube tutorial twelve twenty twice two tying type umbrella
  unaware uncle unclear under undoing unhappy union unique universe unlikely unseen unwanted update upon
  upwards urgency usage use useless usually utility utterly valley valve variable variance varied variety
  various vary vastly verb verdict verse version vertical vicinity video vinyl virtue visible visual vocal
  volume wage wait walk wallet warp warrant wartime wash waste way wedding wee week weekday weekly weird
  welfare went western wet whale when whenever whereby wherever which while whilst whim whistle white
  whoever whose why wide widely wild win window wish wit with withdraw within without witness wizard wolf
  woman women won wood word world worm worn worship wrap wrong wrote yawn yearly yellow yes yield you youth
  zero zone
`);
