import { createInterface, type Interface } from "node:readline";
import { Writable } from "node:stream";

const PROMPT = "> ";
const CONTINUED = "… ";
/** The lines of a pasted text follow one another faster than anyone types. */
const PASTE_MS = 25;
const HISTORY_LINES = 1000;

/** Reads messages from a terminal, with line editing and history. */
export class TerminalInput {
  readonly #screen: EchoScreen;
  readonly #readline: Interface;
  /** Lines of the message that is being written. */
  #lines: string[] = [];
  #isContinued = false;
  #pasteTimer: NodeJS.Timeout | undefined;
  /** Lines typed while the model answered. */
  readonly #waiting: string[] = [];
  #reader: ((message: string | undefined) => void) | undefined;
  #work: AbortController | undefined;
  #wantsToLeave = false;
  #isClosed = false;

  constructor(input: NodeJS.ReadStream, screen: NodeJS.WriteStream, completions: readonly string[]) {
    this.#screen = new EchoScreen(screen);
    this.#readline = createInterface({
      input,
      output: this.#screen,
      terminal: true,
      historySize: HISTORY_LINES,
      removeHistoryDuplicates: true,
      completer: (line: string) => [completions.filter((name) => name.startsWith(line)), line],
    });
    this.#readline
      .on("line", (line) => this.#take(line))
      .on("SIGINT", () => this.#interrupt())
      .on("close", () => this.#end());
  }

  /** The next message; undefined when the user leaves. */
  read(): Promise<string | undefined> {
    const message = this.#waiting.shift();
    if (message !== undefined) {
      this.#screen.write(`${PROMPT}${message}\n`);
      return Promise.resolve(message);
    }
    if (this.#isClosed) return Promise.resolve(undefined);
    this.#prompt(PROMPT);
    return new Promise((resolve) => {
      this.#reader = resolve;
    });
  }

  /** While `work` runs, Ctrl-C aborts it, and typed text is not shown before the next prompt. */
  async during<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    this.#work = new AbortController();
    this.#screen.isMuted = true;
    try {
      return await work(this.#work.signal);
    } finally {
      this.#work = undefined;
      this.#screen.isMuted = false;
    }
  }

  close(): void {
    this.#readline.close();
    this.#screen.release();
  }

  #prompt(text: string): void {
    this.#readline.setPrompt(text);
    // `true`: text typed ahead stays in the line.
    this.#readline.prompt(true);
  }

  #take(line: string): void {
    this.#wantsToLeave = false;
    this.#isContinued = line.endsWith("\\");
    this.#lines.push(this.#isContinued ? line.slice(0, -1) : line);
    if (this.#isContinued) this.#prompt(CONTINUED);
    clearTimeout(this.#pasteTimer);
    this.#pasteTimer = setTimeout(() => this.#finish(), PASTE_MS);
  }

  #finish(): void {
    // The last line of a pasted text may still wait for its Enter.
    if (this.#isContinued || (this.#readline.line !== "" && this.#work === undefined)) return;
    const message = this.#lines.join("\n");
    this.#lines = [];
    this.#give(message);
  }

  #give(message: string): void {
    if (this.#reader === undefined) {
      this.#waiting.push(message);
      return;
    }
    this.#reader(message);
    this.#reader = undefined;
  }

  #interrupt(): void {
    if (this.#work !== undefined) {
      this.#work.abort();
      return;
    }
    const isEmpty = this.#readline.line === "" && this.#lines.length === 0;
    if (isEmpty && this.#wantsToLeave) {
      this.#readline.close();
      return;
    }
    this.#wantsToLeave = isEmpty;
    this.#lines = [];
    this.#isContinued = false;
    this.#screen.write(isEmpty ? "\n(Ctrl-C again, Ctrl-D or /quit to leave)\n" : "\n");
    // Ctrl-U, Ctrl-K: clear the line before and after the cursor.
    this.#readline.write(null, { ctrl: true, name: "u" });
    this.#readline.write(null, { ctrl: true, name: "k" });
    this.#prompt(PROMPT);
  }

  #end(): void {
    this.#isClosed = true;
    clearTimeout(this.#pasteTimer);
    if (this.#work === undefined) this.#screen.write("\n");
    this.#reader?.(undefined);
  }
}

/** The terminal as readline sees it; its output can be held back. */
class EchoScreen extends Writable {
  isMuted = false;
  readonly #terminal: NodeJS.WriteStream;
  readonly #onResize = () => this.emit("resize");

  constructor(terminal: NodeJS.WriteStream) {
    super();
    this.#terminal = terminal;
    terminal.on("resize", this.#onResize);
  }

  get columns(): number {
    return this.#terminal.columns;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    if (!this.isMuted) this.#terminal.write(chunk);
    done();
  }

  release(): void {
    this.#terminal.off("resize", this.#onResize);
  }
}
