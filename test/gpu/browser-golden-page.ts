import { decodeSafetensors } from "../../src/checkpoints/safetensors.js";
import type { ForwardBackwardCall, LoraSettings } from "../../src/local/engine/engine.js";
import { openGpuDevice } from "../../src/local/engine/kernels/webgpu/gpu-device.js";
import { createWebGpuKernels } from "../../src/local/engine/kernels/webgpu/webgpu-kernels.js";
import { loadBaseModel } from "../../src/local/engine/model/base-model.js";
import { modelFilesOf } from "../../src/local/engine/model/model-files.js";
import { LoraAdapter } from "../../src/local/engine/training/adapter.js";
import { trainingPass } from "../../src/local/engine/training/training-pass.js";

async function bytesOf(path: string): Promise<Uint8Array> {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** One forward and backward pass of a fixture in the tab: the loss, and the gradients by PEFT name. */
export async function goldenPass(lora: LoraSettings, call: ForwardBackwardCall) {
  const device = await openGpuDevice(navigator.gpu);
  if (!device) throw new Error("the browser has no WebGPU adapter");
  const kernels = createWebGpuKernels(device);
  const config: unknown = await (await fetch("/model/config.json")).json();
  const files = modelFilesOf({
    path: "/model",
    config,
    weights: [await bytesOf("/model/model.safetensors")],
  });
  const model = await loadBaseModel(kernels, "fixture", files);
  const { tensors } = decodeSafetensors(await bytesOf("/model/adapter/adapter_model.safetensors"));
  const adapter = LoraAdapter.restore(kernels, model, { lora, tensors }, false);
  const pass = trainingPass(kernels, adapter, call);
  let step = await pass.next();
  while (!step.done) step = await pass.next();
  const gradients = await adapter.exportGradients();
  await kernels.close();
  return { adapter: device.info.description, metrics: step.value.metrics, gradients };
}
