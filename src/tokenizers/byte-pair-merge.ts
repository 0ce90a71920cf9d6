/** Beyond any place in a piece, so that rank and place fit in one exact number. */
const PLACES = 2 ** 32;

/**
 * The tokens of one piece: of all neighbours that are a token together, those of the lowest rank are joined first,
 * the leftmost of equals, until none are left. Every byte of the piece is a character of the text.
 */
export function bytePairMerge(piece: string, ranks: ReadonlyMap<string, number>): number[] {
  const whole = ranks.get(piece);
  if (whole !== undefined) return [whole];
  const length = piece.length;
  // Where the part that begins here ends, and where the one before it begins; 0 once a part was joined to another.
  const endOf = new Uint32Array(length);
  const before = new Int32Array(length + 1);
  for (let place = 0; place < length; place++) {
    endOf[place] = place + 1;
    before[place] = place - 1;
  }
  const heap: number[] = [];
  const pairRank = (place: number): number | undefined => {
    const middle = endOf[place]!;
    return middle === 0 || middle >= length ? undefined : ranks.get(piece.slice(place, endOf[middle]));
  };
  const offer = (place: number) => {
    const rank = pairRank(place);
    if (rank !== undefined) push(heap, rank * PLACES + place);
  };
  for (let place = 0; place + 1 < length; place++) offer(place);

  while (heap.length > 0) {
    const entry = pop(heap);
    const place = entry % PLACES;
    // Neighbours change: only what is still true counts.
    if (pairRank(place) !== Math.floor(entry / PLACES)) continue;
    const middle = endOf[place]!;
    const end = endOf[middle]!;
    endOf[place] = end;
    endOf[middle] = 0;
    before[end] = place;
    offer(place);
    if (before[place]! >= 0) offer(before[place]!);
  }

  const tokens: number[] = [];
  for (let place = 0; place < length; place = endOf[place]!) {
    const rank = ranks.get(piece.slice(place, endOf[place]));
    if (rank === undefined)
      throw new Error(`tiktoken.model has no token for byte ${piece.charCodeAt(place)}.`);
    tokens.push(rank);
  }
  return tokens;
}

function push(heap: number[], entry: number): void {
  let index = heap.length;
  heap.push(entry);
  while (index > 0) {
    const parent = (index - 1) >> 1;
    if (heap[parent]! <= entry) break;
    heap[index] = heap[parent]!;
    index = parent;
  }
  heap[index] = entry;
}

function pop(heap: number[]): number {
  const top = heap[0]!;
  const last = heap.pop()!;
  const size = heap.length;
  if (size === 0) return top;
  let index = 0;
  for (;;) {
    let child = 2 * index + 1;
    if (child >= size) break;
    if (child + 1 < size && heap[child + 1]! < heap[child]!) child++;
    if (heap[child]! >= last) break;
    heap[index] = heap[child]!;
    index = child;
  }
  heap[index] = last;
  return top;
}
