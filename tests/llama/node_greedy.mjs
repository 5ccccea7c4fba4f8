// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a model writes greedily after a prompt, by node-llama-cpp as npm has it.
//
//     node node_greedy.mjs MODEL PROMPT COUNT THREADS
//
// Prints how many tokens the prompt has, and the COUNT tokens after it, as JSON.

import {getLlama} from "node-llama-cpp";

const [modelPath, prompt, count, threads] = process.argv.slice(2);
const llama = await getLlama({build: "never", gpu: false, progressLogs: false});
const model = await llama.loadModel({modelPath});
const context = await model.createContext({
    contextSize: 256,
    batchSize: 128,
    threads: Number(threads),
});
const sequence = context.getSequence();
const tokens = model.tokenize(prompt);
const written = [];
for await (const token of sequence.evaluate(tokens, {temperature: 0, yieldEogToken: true})) {
    written.push(token);
    if (written.length >= Number(count)) {
        break;
    }
}
console.log(JSON.stringify({prompt: tokens.length, tokens: written}));
await llama.dispose();
