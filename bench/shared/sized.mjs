/** The usual size of something in a bench; with `--smallest` one that only shows that the bench still runs. */
export const sized = (usual, smallest) => (process.env.TINKERTS_BENCH_SIZE === "smallest" ? smallest : usual);
