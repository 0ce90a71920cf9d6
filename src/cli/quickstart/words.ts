// A selection from SCOWL's lists of common English words. SCOWL is Copyright 2000-2011 by Kevin Atkinson. Permission to
// use, copy, modify, distribute and sell these word lists, the associated scripts, the output created from the scripts,
// and its documentation for any purpose is hereby granted without fee, provided that the above copyright notice appears
// in all copies and that both that copyright notice and this permission notice appear in supporting documentation. Kevin
// Atkinson makes no representations about the suitability of this array for any purpose. It is provided "as is" without
// express or implied warranty.

const list = (text: string) => text.trim().split(/\s+/);

/** The consonants a word begins with move to its end; "qu" counts as one, and a word without any gets a "w". */
export function pigLatin(word: string): string {
  const start = /^(?:[^aeiouyq]*qu|y(?=[aeiou])|[^aeiouy]*)/.exec(word)?.[0] ?? "";
  return `${word.slice(start.length)}-${start || "w"}ay`;
}

/** Test words, which are not among the training words. */
export const heldOutWords: readonly string[] = list(`
  accurate aid alarm along barrel beast birthday bite bizarre book boot boredom break built call carrier
  char choice chord cinema comedy con confirm coverage curry dear doe dose drivel even exchange exclude
  exotic fake fashion fender fiddle finger fork four fresh grip group gulf heritage horrible idiom impose
  industry insist interest keep level load luck lying made mask metaphor midnight modified mountain nearby
  packet pat peak pedant piano ploy praise previous price properly put quality query rainbow reality reduce
  seem segment sense separate servant should symphony tailor terribly than tongue traffic truck twenty
  useless various wage wallet whereby window yawn
`);

export const trainingWords: readonly string[] = list(`
  aardvark able absolute abstract academic accent accept access accident account accuracy ace achieve acorn
  acquire acronym across act action active activity actor actual acute addition adequate adjust admit adopt
  adoption advance advent advice advise advisor advocate aerial affair affect afford after again against age
  agency ago agony agree ahead aim air aircraft airport album alert algebra alias alien alive alliance ally
  almost alone alpha alphabet already also alter although always amaze amber among amount amuse analog
  analysis analyst anarchy anatomy ancient and anecdote anger angry announce annoy anorak another answer
  antique any anybody anyplace anything anyway anywhere apart apparent appeal appear appendix applause apple
  applied approval approve arc arcade arch area argue argument arise arm around array arrive arrow article
  artist ashcan aside ask asleep aspect assembly asset assign assume assure atom attach attempt attend
  attitude attorney audible audience audio aunt author autumn average avoid awake aware away awful awkward
  axiom axis baby backbone backlog bad badly baffle baggage bake balance ballet ballot ban banana bang bank
  bark baroque barrier base bash basic basis basket bass bat bathroom battery baud bay beach beam bear
  beauty became because bed bedroom beef been before began behalf behave behavior being belief bell beloved
  bend benefit bent besides best beta beyond bias bicycle big billfold billion bin binary biology bird bit
  bitten blade blame blank blanket blast blessing blind blink blob block blow blue board boat bob boil bond
  bookshop border bore borne borrow boss both bottle bottom bought bound boundary bout bow box boy bracket
  brain brake branch brand brass brave breach bread breath brick brief briefly brigade bright bring broke
  broken brought brown browse brush bubble buck bucket budget buffer build bulk bulletin bunch bundle buried
  burn bury bus bush business busy button buy bye bypass byte cabbage cabinet cable caffeine cage cake
  calculus cam came camera campaign campus cannot capable capacity capital captain capture car carbon care
  careful carpet carriage carried carrot cartoon case cash cassette casual catalog catch category cattle
  cave caveat ceiling cell cellular central century ceremony certain chain chairman chalk chamber champion
  change channel chapel chapter charge charity charm chart chase chat cheap cheek cheer cheese chemical
  chemist chess chest chestnut chief child children chip choir choose chop choral chose chuck chunk cider
  circuit cite city clarify clash classic clean clear clearly clever click client climate clinic clip clique
  clock clog clone close closely closet cloth club clue coach coal coat cobbler code coffee cold collapse
  collar colon colony color column combat combine come comfort comment compact company compare complain
  complete complex compose compound compress compute concept concern concerto concrete conduct confine
  conflict confuse connect consider consist console constant contact contain content contest continue
  contract contrast control converse convert convince cook cookie cool cope copied copper copy core corn
  correct corridor cost council counsel country court cover cow craft cramp crash crawl cream create
  creation creative creator creature credit creed cricket crisis crisp critic critical crop crowd crude
  cruise crunch cry crystal cue culprit culture cup cupboard cure curious currency current cursor curtain
  curve custard custom cut cyclist cylinder daily damage damp dance darkness darling dash data database date
  datum dawn day daylight daytime deal dealt debate debt decade decay decimal decision deck declare decline
  decrease dedicate deduce deem deep default defeat defect defense degree deity delete deletion delight
  delivery delta demand density depend deposit depth deputy describe desert design desire desk desktop
  despair despite destroy develop device devise diagram dial dialect dialog diameter dictate did diesel diet
  differ digit dignity dilemma diner dinner directly director dirt dirty disagree disaster discard disco
  discount disguise disk dislike disorder disposal distance distant distinct district disturb divine
  division doctor document dodge dog dole dollar domain domestic dominant don donation done doom dot double
  doubt doubtful down draft dragon drain drama drastic draw drawback drawn dread dream dress drew drift
  drill drink drip drive driven drop dubious duck dust dustbin dynamic each ear earlier earliest early ease
  easiest east easy eat eaten ecology economic economy edge edit edition editor egg ego eight eighteen
  eighth either elect election electric electron element elephant elevator eleven elite elitist emphasis
  empire employ employee empty emulator enable end energy engine enormous enough ensure enter entire
  entirely entirety entrance envelope epic equal equality equally equation err error essay essence estate
  eternity ethic ethnic event ever every everyone evidence exact exactly exam example exercise exhibit exit
  expect expense expert explain exploit export expose exposure express extend extent extra eye eyesight
  fabric face fact factor factory faculty fail faint fair fairness fairy fall fallacy fallen fame family
  famous fan fancy far farce farther farthest fast father faucet fault fear feasible feature fed federal
  feedback feel feet fell felt fence festival few fiber fiction field fifteen fifth fifty fight file fill
  film filter final finally finance find finish firework firm first fiscal fish fit fix flash flat fleet
  flew flexible flight float flood floor flour flow flown fluid flush foam fog folk font food football
  footnote forecast forget forgot form formal format formula fortune forty forum forward fossil found
  fourteen fraction fragment frame frank fraud freedom freely french frequent friend fringe frog from front
  frown fruit fry fudge fuel fully fume fun function funeral funny fur further fuse fusion fuss future
  galaxy game gang gap garage garbage gas gate gateway gave gear gene generate generic genetics genius
  genuine geology ghost giant gift gig girl give given glance glass global glory glossy glove glow gnome
  going gold golf gone goodness gossip gotten grab grace graffito grammar grand grant graph graphic grass
  grateful grave gravity great greatly greed green grew grief grind gross ground grow grown growth guard
  guess guest guidance guide guinea guitar gum gutter guy habit hack had haircut hall halt handy happen
  happily hard hardback hardly hardware harmful harmless harmony has hassle have hazard head headline
  healthy heap hear heart heat heaven heavily heavy heel height helmet help helpful hence her here hereby
  hero herself hes hid hide high highly him himself hint hip hire his history hit hobby hog hold hole
  holiday hollow home honest honesty hope horde horizon horn horror horse hospital hostile hotel house how
  however huge hum human humanity humor hundred hunt hurry hurt husband hut hydrogen hyphen icon idea ideal
  identify identity ignore ill illness illusion image imagine impact imperial imply import improve impulse
  inch incident incline include income increase indeed index indicate inertia infant inferior infinite
  infinity info inform initial initiate injury inner innocent inquiry insert inside insight install instance
  instead instinct intake integral intend intent interact internal intimate into invalid invasion invert
  invite involve ion iron irony island isolate item its itself jack jacket jam jargon jeans jelly jest jet
  join jolly journal journey joy judge jump junction jungle junior junk jury justice justify keen ken kernel
  kettle kick kid kidney kind kindness king kit kitchen knee knight lab lack lad lag lake lamp land landlord
  language largely lark laser last latter laugh laughter lavatory lawn lawyer lay laziness lazy leach lead
  leaf leaflet leak lean leap leave lecture led leg legal legend leisure lemon lend lesbian liaison libel
  liberty library license lid lie lifetime lift light like likely likewise limb limit line linear link lion
  lip liquid lisp list listen literal literate litter little live loan lobby local lodge logic logical logo
  long look loop loophole lose loss lost lot loudly love lovely low lucky luggage lunch lyric madness magic
  mail mailbox main mainly maintain maize major make male man manage mandate mangle mankind manpower manual
  many map march marriage married marry mass massive master match mate material matrix maximum maybe mayor
  maze mean meant meantime measure meat mechanic media medical medicine meet megabyte melody melt member
  menu mercury mercy mere merit met metal method metro midday middle might mild mile military mill million
  mind mine minimum minor minority mint minus minute miracle misery mislead misled misprint miss missile
  mission mistook misuse mix mixture mnemonic mobile mod mode model modern modify module moment money
  monitor monkey monthly moon moral morality more most mother motion motive motor motorway motto mount mouse
  move movement movie much muck mud muddle multiple mumble mummy muscle museum music musical musician must
  mutter myself mystery mystic myth nail naive namely narrow national native natural nature nay near nearly
  neck needle neither nervous nest network never new next nice nickname night nil nine noble nobody node
  noise noisy noon nor norm normal north nose not notable notation note notify novel novelty novice now
  nowhere nuisance numeral numerous nurse oar obey obscure obtain obvious occasion occupy occur ocean odd
  off offender offense official offset old omission omit once one onion onto open opera operator opinion
  opponent optic optimum option optional opus orange orbit orbital order ordinary organic orient oriental
  original other ought out outline outlook output outset over overall overhead overlap overload override
  overtime overtone overview owe own oxygen pacifier package page paid pain painful palace pale panic pant
  paper parade paradox paranoia pardon parent parity parrot part partly partner party pass passage passion
  passive passport password paste patch patent path pattern pause pay peanut peasant peculiar pedantry peer
  pencil penguin penny per perfect perform perhaps permit person persuade pet petrol pharmacy phase phoenix
  phone photo phrase physic physical picture pie piece pig pigeon pilot pin pinch pink pint pipe pipeline
  pitch pitfall pity pizza plain plan plane plant plaster plastic plate platform plea pleasant please
  pleasure plenty plot plug plus pocket poem poet poetry point poke pole police policy polish pool populace
  pork port portable portion pose positive possible possibly post postage potato poverty power practice
  prayer precise preface prefix premise premium present preserve press pressure presume pretty prevent
  preview pride primary prime prince printout prior priority privacy private prize probable problem process
  produce profile program promise prompt promptly prone proof proper prophet proposal propose prose protect
  protein protest protocol prove provide publicly pudding pulp pun punch puncture pupil purchase purge
  purity purple putt puzzle qualify quantity quantum queen quest queue quick quickly quit quite quota rabbit
  race rack racket radical radius rag rage raid rail rain raise ram ran random randomly range rant rapid
  rare rat rate rather ratio rave ray razor react reaction read readable readily realize really realm recall
  receipt recent recently recipe record recover recovery recruit recycle red reflex reform refrain refusal
  refuse regard regime region regular reign relate relation relative relay release relevant reliable relief
  rely remain remark remember remind remotely render repair repeat replace reply report request require
  research reset resident resist respect respond response rest restart restore restrict result resume retail
  retain retrieve return reuse reveal revenue reverse revolt reward rewrite rhyme rhythm ribbon rice rich
  rid ride right ring rip rise risk rival river robot rock rod romance romantic roof root rope rose rot
  rough rout route routine row royal rubbish ruin rumor run rung rush sack sad sadly safe safety said sail
  sake salary sale salesman same sample sand sanity sarcasm sat satire satisfy sauce save saw say scan
  scandal scare scarf scenario scenery schedule scheme scholar school science scope score scotch scratch
  scream screen script scroll season seat second secondly secret sect sector security see seek seen select
  self sell seminar send senior sensible sensibly sent serial serious serve service session set settle seven
  seventh several severe shadow shake shall shame shape share she shelf shelter shine ship shock shoe shop
  shortage shout show shown shut shutdown shy side sigh sight sign signal silence silent silicon silly
  similar simple simply since single singular sink sister site six sixteen sixth sixty sketch skin skip sky
  slag slash sleep slice slide slip slogan slow slowly smart smash smell smile smith snag sniff snow soap
  social society sock sod soft sold soldier sole solely solid solo solution solve somehow someone sometime
  son song sorry sort sought soul sound soup source south span spare species specific specify specimen
  speech speed spell spend spent sphere spigot spike spill spiral spirit spite split spoke sponsor spool
  spread spring spur spy squad square stable staff stagger stair stake stamp stance stand standard stare
  start state static station status stay steady steel steep steer stem sterling stick sticky still stir
  stole stomach stood stop store storm story straight strange strategy straw stray stream street strength
  strict strictly string strong strongly struck struggle stuck studio study stumble style subject subset
  subtlety subway succeed success such sudden suddenly suffer suffice suffix sugar suggest suit suitable
  suitably suite sun sunlight sunrise super superior supplied supplier supply support suppose sure surface
  surgery surplus surprise survival survive suspect suspend swallow swamp swap swim swing sword symbol
  symmetry sympathy symptom syndrome synonym system tab table tackle tactic tag tail take tale talent talk
  tangent tank tap target task taste tax taxi teach team teapot tear tedious teeth temper temple ten tennis
  tense tension term terminal test text textbook thank that theater their them theme theology theorem theory
  there thereby these they thick thin think third thirty this those though thousand thread threat threw
  throat through thrown thumb thus tick ticket tie tiger tight tin tire title toad toast today toe together
  toggle token told tomato tomorrow ton tone tonight too tool tooth top topic toss total totally touch tough
  tourist toward tower town trace track tragedy trail train transfer transit trashcan tray tread treat
  treaty trek trendy trial triangle tribe trick tried trifle trilogy triple triumph trivial trolley troop
  trouser true truly trumpet trunk trust try tube tutor tutorial twelve twice two tying type typical
  umbrella unaware uncle unclear under underlay undoing unhappy uniform union unique unity universe unless
  unlikely unseen until unwanted update upon upside upwards urgency usage use useful usual usually utility
  utterly vacancy validity valley value valve van variable variance varied variety vary vastly vector
  velocity venture verb verdict verse version vertical very vessel vet via vicinity victory video vinyl
  violin virtue visible visit visual vocal voice voltage volume vowel wade wait walk wall warp warrant
  wartime wash waste watch water way weakness wealth wear weasel wedding wee week weekday weekly weird
  welcome welfare went were western wet whale what wheel when whenever whereas wherever which while whilst
  whim whiskey whistle white who whoever whole whom whoop whose why wide widely wife wild will win winter
  wipe wish wit with withdraw within without witness wizard wolf woman women won wont wood wooden word wore
  workshop world worm worn worse worship worst worth would wrap wren wrist written wrong wrote yard year
  yearly yellow yes yet yield you youth zero zone
`);
