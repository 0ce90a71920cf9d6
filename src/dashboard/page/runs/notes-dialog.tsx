import { useEffect, useRef, useState } from "preact/hooks";
import type { RunNotes, RunSummary } from "../../api.js";
import { ProblemNote } from "../parts/pieces.js";
import { askJson } from "../server.js";
import { problemOf } from "../store.js";

/** Opens the tags and the note of a run. */
export function NotesButton({ run }: { readonly run: RunSummary }) {
  const [isOpen, setIsOpen] = useState(false);
  const words = run.tags.length > 0 || run.note !== "" ? "Edit note" : "Add note";
  return (
    <>
      <button
        type="button"
        class="quiet small"
        aria-label={`${words}: ${run.name}`}
        title={words}
        onClick={() => setIsOpen(true)}
      >
        ✎
      </button>
      {isOpen && <NotesDialog run={run} onClose={() => setIsOpen(false)} />}
    </>
  );
}

function NotesDialog({ run, onClose }: { readonly run: RunSummary; readonly onClose: () => void }) {
  const place = useRef<HTMLDialogElement>(null);
  const [tags, setTags] = useState(run.tags.join(", "));
  const [note, setNote] = useState(run.note);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  useEffect(() => place.current?.showModal(), []);
  const save = () => {
    const notes: RunNotes = {
      tags: [
        ...new Set(
          tags
            .split(",")
            .map((tag) => tag.trim())
            .filter(Boolean),
        ),
      ],
      note: note.trim(),
    };
    askJson<RunNotes>(`runs/${run.id}/notes`, { method: "POST", body: JSON.stringify(notes) }).then(
      onClose,
      (error: unknown) => setProblem(problemOf(error)),
    );
  };
  return (
    <dialog ref={place} onClose={onClose} aria-label={`Tags and note of ${run.name}`}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <h2 class="text">{run.name}</h2>
        <label>
          Tags, separated by commas
          <input value={tags} onInput={(event) => setTags(event.currentTarget.value)} />
        </label>
        <label>
          Note
          <textarea
            rows={4}
            maxLength={4000}
            value={note}
            onInput={(event) => setNote(event.currentTarget.value)}
          />
        </label>
        <p class="note">
          Kept in <span class="mono">notes.json</span> of the run's folder.
        </p>
        <ProblemNote text={problem} />
        <span class="bar">
          <button type="submit" class="primary">
            Save
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </span>
      </form>
    </dialog>
  );
}
