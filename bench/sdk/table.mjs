/** The result of bench/sdk as Markdown. */
export function sdkTable({ results, installedMegabytes, emptyProcess }) {
  const head = [
    "| | tinkerts | Python | undici alone | bare sockets | throughput | CPU | memory |",
    "|---|---|---|---|---|---|---|---|",
  ];
  const side = (figures) =>
    figures === null ? "-" : `${figures.seconds} s, ${figures.cpuSeconds} s CPU, ${figures.peakMegabytes} MB`;
  const times = (value) => (value === null ? "-" : `${value} x`);
  const seconds = (value) => (value === null ? "-" : `${value} s`);
  const rows = results.map((row) => {
    const cells = [
      row.workload,
      side(row.tinkerts),
      side(row.python),
      seconds(row.undiciSeconds),
      seconds(row.loopbackSeconds),
      times(row.throughputRatio),
      times(row.cpuRatio),
      times(row.memoryRatio),
    ];
    return `| ${cells.join(" | ")} |`;
  });
  return [
    ...head,
    ...rows,
    "",
    `Installed, dependencies included: ${installedMegabytes.tinkerts} MB beside ${installedMegabytes.python ?? "-"} MB.`,
    `An empty process of the runtime: Node ${emptyProcess.nodeMegabytes} MB, Python ${emptyProcess.pythonMegabytes ?? "-"} MB.`,
  ].join("\n");
}
