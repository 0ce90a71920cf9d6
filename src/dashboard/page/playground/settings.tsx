import { useState } from "preact/hooks";
import { PageStore, useStore } from "../store.js";

const KEY = "tinkerts-playground";

/** How all columns sample. */
export interface PlaygroundSettings {
  readonly temperature: number;
  readonly topP: number;
  readonly maxTokens: number;
  readonly seed: number;
  /** Answers of each model. */
  readonly samples: number;
  /** Likeliest tokens that are shown with each token. */
  readonly alternatives: number;
  /** Texts that end an answer, one per line. */
  readonly stop: string;
  readonly prefill: string;
}

const DEFAULTS: PlaygroundSettings = {
  ...{
    temperature: 0.7,
    topP: 1,
    maxTokens: 256,
    seed: 0,
    samples: 1,
    alternatives: 0,
    stop: "",
    prefill: "",
  },
};

/** Settings of the playground, which this browser keeps. */
export const playgroundSettings = new PageStore<PlaygroundSettings>(read());

const NUMBERS = [
  { name: "temperature", title: "Temperature", min: 0, max: 2, step: 0.1 },
  { name: "topP", title: "Top p", min: 0.01, max: 1, step: 0.01 },
  { name: "maxTokens", title: "Max tokens", min: 1, max: 100_000, step: 1 },
  { name: "seed", title: "Seed", min: 0, max: 2 ** 31 - 1, step: 1 },
  { name: "samples", title: "Samples", min: 1, max: 8, step: 1 },
  { name: "alternatives", title: "Alternatives", min: 0, max: 10, step: 1 },
] as const;

/** Fields of the settings. */
export function SettingsFields() {
  const settings = useStore(playgroundSettings);
  const set = (change: Partial<PlaygroundSettings>) => {
    playgroundSettings.set({ ...settings, ...change });
    localStorage.setItem(KEY, JSON.stringify(playgroundSettings.value));
  };
  const [isOpen, setIsOpen] = useState(settings.prefill !== "" || settings.stop !== "");
  return (
    <>
      <div class="bar">
        {NUMBERS.map(({ name, title, ...range }) => (
          <label key={name}>
            {title}
            <input
              type="number"
              class="place"
              required
              {...range}
              value={settings[name]}
              onChange={({ currentTarget: { validity, valueAsNumber } }) =>
                validity.valid && set({ [name]: valueAsNumber })
              }
            />
          </label>
        ))}
        <button type="button" class="quiet" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
          Prefill and stops
        </button>
      </div>
      {isOpen && (
        <div class="pair">
          <label>
            Prefill
            <textarea
              rows={2}
              value={settings.prefill}
              placeholder="Beginning of the answer, which the models continue"
              onInput={(event) => set({ prefill: event.currentTarget.value })}
            />
          </label>
          <label>
            Stop
            <textarea
              rows={2}
              value={settings.stop}
              placeholder="Texts that end an answer, one per line"
              onInput={(event) => set({ stop: event.currentTarget.value })}
            />
          </label>
        </div>
      )}
    </>
  );
}

function read(): PlaygroundSettings {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<PlaygroundSettings>;
    const known = Object.entries(DEFAULTS).map(([name, value]) => {
      const own = kept[name as keyof PlaygroundSettings];
      return [name, typeof own === typeof value ? own : value];
    });
    return Object.fromEntries(known) as PlaygroundSettings;
  } catch {
    return DEFAULTS;
  }
}
