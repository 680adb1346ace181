// Bundle of what every page needs: Preact, htm, signals, uPlot. The build replaces this file.
import { h } from "preact";
import htm from "htm";

export { Component, createRef, Fragment, render } from "preact";
export { useEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
export { default as uPlot } from "uplot";

/** Template strings as elements of Preact. */
export const html = htm.bind(h);
