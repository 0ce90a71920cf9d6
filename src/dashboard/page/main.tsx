import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./styles.css";
import { DashboardPage } from "./app.js";

render(<DashboardPage />, document.body);
