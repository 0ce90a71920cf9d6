/**
 * How much each owner holds of a shared limit. Half of it is first come, first served; the other half is divided
 * evenly between the owners and kept for them, so that one who takes all there is leaves the others able to work.
 */
export class OwnerShares {
  readonly #owners: number;
  readonly #limit: () => number;
  readonly #held = new Map<string, number>();

  /** `owners`: how many there can be. `limit`: what they may hold together. */
  constructor(owners: number, limit: number | (() => number)) {
    this.#owners = Math.max(1, owners);
    this.#limit = typeof limit === "number" ? () => limit : limit;
  }

  /** Sum over all owners. */
  get total(): number {
    let total = 0;
    for (const held of this.#held.values()) total += held;
    return total;
  }

  heldBy(owner: string): number {
    return this.#held.get(owner) ?? 0;
  }

  /** The most an owner may hold at this moment. */
  limitFor(owner: string): number {
    const common = this.#limit() / 2;
    const kept = common / this.#owners;
    let left = common;
    for (const [other, held] of this.#held) if (other !== owner) left -= Math.max(0, held - kept);
    return kept + Math.max(0, left);
  }

  /** Whether an owner may hold so much more; one that holds nothing may always have one thing. */
  admits(owner: string, amount: number): boolean {
    const held = this.heldBy(owner);
    return held === 0 || held + amount <= this.limitFor(owner);
  }

  /** Counts what an owner takes, or with a negative amount gives back. */
  add(owner: string, amount: number): void {
    const held = this.heldBy(owner) + amount;
    if (held > 0) this.#held.set(owner, held);
    else this.#held.delete(owner);
  }
}
