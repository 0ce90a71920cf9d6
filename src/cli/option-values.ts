import { InvalidArgumentError } from "commander";

/** Reads a whole number between two bounds, both included. */
export function wholeNumber(lowest: number, highest: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < lowest || value > highest) {
      throw new InvalidArgumentError(`It must be a whole number from ${lowest} to ${highest}.`);
    }
    return value;
  };
}

/** For options that may be given several times. */
export function gathered<T>(read: (text: string) => T): (text: string, previous?: readonly T[]) => T[] {
  return (text, previous = []) => [...previous, read(text)];
}
