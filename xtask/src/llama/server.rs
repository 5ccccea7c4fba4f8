// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stock llama-server as a source of logits.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::stock::{Backend, Stock};
use crate::process::{self, ReaderThread};

/// How long the server may take to load a tiny model.
const START_LIMIT: Duration = Duration::from_secs(300);
/// Time in which a server must end that was told to.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Time in which a server must answer a request.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);
/// Candidates asked for at each step.
const CANDIDATES: usize = 8;

/// How often it is started on another port, if it ends at once.
const STARTS: usize = 3;

/// The server ended before it answered.
#[derive(Debug, thiserror::Error)]
#[error("llama-server ended with {status} while starting: {log}")]
struct EndedEarly {
    status: ExitStatus,
    log: String,
}

/// A token that might have been written.
#[derive(Debug, Clone)]
pub(super) struct TokenCandidate {
    /// The token's id.
    pub(super) id: u32,
    /// The token's text.
    pub(super) bytes: Vec<u8>,
    /// How far its logit lies below the best one.
    pub(super) gap: f64,
}

/// One token that the CPU wrote, and what else it might have written.
#[derive(Debug)]
pub(super) struct TokenChoice {
    /// Best first.
    candidates: Vec<TokenCandidate>,
}

impl TokenChoice {
    /// Makes a step of at least two candidates, best first.
    pub(super) fn new(candidates: Vec<TokenCandidate>) -> Result<Self> {
        ensure!(
            candidates.len() >= 2,
            "a step with fewer than two candidates"
        );
        Ok(Self { candidates })
    }

    /// The token that was written.
    pub(super) fn id(&self) -> u32 {
        self.candidates[0].id
    }

    /// The chosen token's text.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.candidates[0].bytes
    }

    /// How far the second best logit lies below the best one.
    pub(super) fn gap(&self) -> f64 {
        self.candidates[1].gap
    }

    /// Other tokens whose logit lies less than `tie` below the best one.
    pub(super) fn rivals(&self, tie: f64) -> impl Iterator<Item = &TokenCandidate> {
        self.candidates[1..]
            .iter()
            .filter(move |candidate| candidate.gap < tie)
    }
}

/// The text of some steps.
pub(super) fn text(steps: &[TokenChoice]) -> Vec<u8> {
    steps.iter().flat_map(TokenChoice::bytes).copied().collect()
}

/// A running server; stopped when dropped.
#[derive(Debug)]
pub(super) struct LlamaServer {
    child: Child,
    port: u16,
    /// Reads what it writes to stderr.
    log: Option<ReaderThread<Vec<u8>>>,
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Deserialize)]
struct Completion {
    completion_probabilities: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    id: u32,
    top_logprobs: Vec<Scored>,
}

#[derive(Deserialize)]
struct Scored {
    id: u32,
    bytes: Vec<u8>,
    logprob: f64,
}

impl LlamaServer {
    /// Starts one without our backend, for one request at a time, and waits
    /// until it answers.
    pub(super) fn start(stock: &Stock, model: &str, threads: &str) -> Result<Self> {
        let command = stock.command("llama-server", Backend::Without)?;
        Self::launch(command, model, threads, 1)
    }

    /// Starts `command`, a llama-server, for `slots` requests at a time, and
    /// waits until it answers.
    pub(super) fn launch(
        mut command: Command,
        model: &str,
        threads: &str,
        slots: usize,
    ) -> Result<Self> {
        command
            .args(["-m", model, "--host", "127.0.0.1"])
            .args(["-t", threads, "-tb", threads])
            .args(["-np", &slots.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut tries = 1;
        loop {
            match Self::start_on_a_free_port(&mut command) {
                // Another program may have taken the port meanwhile.
                Err(error) if tries < STARTS && error.is::<EndedEarly>() => tries += 1,
                other => return other,
            }
        }
    }

    fn start_on_a_free_port(command: &mut Command) -> Result<Self> {
        // A port that is free now; the server takes it a moment later.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .context("looking for a free port")?
            .port();
        // Of several ports the last counts.
        command.args(["--port", &port.to_string()]);
        let mut child = command.spawn().context("starting llama-server")?;
        let log = Some(process::collect(child.stderr.take()));
        let mut server = Self { child, port, log };
        let end = Instant::now() + START_LIMIT;
        while server.request("GET", "/health", None).is_err() {
            if let Some(status) = server.child.try_wait()? {
                let log = server.log.take().and_then(|log| log.result(end).ok());
                let log = String::from_utf8_lossy(&log.unwrap_or_default()).into_owned();
                return Err(EndedEarly { status, log }.into());
            }
            if Instant::now() > end {
                bail!(
                    "llama-server did not answer within {} s",
                    START_LIMIT.as_secs()
                );
            }
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    /// Asks it to stop, and waits until it has; what it wrote to stderr.
    ///
    /// # Errors
    /// If it ends otherwise than well, or not at all.
    pub(super) fn stop(mut self) -> Result<String> {
        let mut kill = Command::new("sh");
        kill.args(["-c", &format!("kill -TERM {}", self.child.id())]);
        process::run(kill, STOP_LIMIT)?.checked("kill")?;
        let end = Instant::now() + STOP_LIMIT;
        let status = process::wait(&mut self.child, STOP_LIMIT).context("stopping llama-server")?;
        let log = self.log.take().context("its log was taken before")?;
        let log = log.result(end).context("reading from llama-server")?;
        let log = String::from_utf8_lossy(&log).into_owned();
        ensure!(status.success(), "llama-server ended with {status}: {log}");
        Ok(log)
    }

    /// The tokens of a prompt, as llama-completion makes them.
    pub(super) fn tokenize(&self, prompt: &str) -> Result<Vec<u32>> {
        let request = json!({ "content": prompt, "add_special": true });
        let mut answer = self.request("POST", "/tokenize", Some(&request))?;
        serde_json::from_value(answer["tokens"].take()).context("reading the tokens")
    }

    /// What the CPU writes after `tokens`: `count` steps, greedily.
    pub(super) fn complete(&self, tokens: &[u32], count: usize) -> Result<Vec<TokenChoice>> {
        let request = json!({
            "prompt": tokens,
            "n_predict": count,
            "n_probs": CANDIDATES,
            "temperature": 0,
            "ignore_eos": true,
            // Each answer from scratch, as llama-completion computes it.
            "cache_prompt": false,
        });
        let answer = self.request("POST", "/completion", Some(&request))?;
        let steps = read_steps(answer)?;
        ensure!(
            steps.len() == count,
            "llama-server wrote {} tokens, not {count}",
            steps.len()
        );
        Ok(steps)
    }

    /// One HTTP request with a JSON answer. The server is local and closes
    /// the connection when asked to, so no client library is needed.
    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        read_answer(&answer).with_context(|| format!("{method} {path}"))
    }
}

fn read_answer(answer: &[u8]) -> Result<Value> {
    let text = std::str::from_utf8(answer).context("the answer is not UTF-8")?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .context("the answer has no end of its head")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    ensure!(status == "200", "status {status}: {body}");
    serde_json::from_str(body).context("the answer is not JSON")
}

fn read_steps(answer: Value) -> Result<Vec<TokenChoice>> {
    let completion: Completion = serde_json::from_value(answer).context("reading the answer")?;
    completion
        .completion_probabilities
        .into_iter()
        .map(|choice| {
            let best = choice
                .top_logprobs
                .first()
                .map_or(0.0, |first| first.logprob);
            let mut candidates: Vec<TokenCandidate> = choice
                .top_logprobs
                .into_iter()
                .map(|scored| TokenCandidate {
                    id: scored.id,
                    bytes: scored.bytes,
                    gap: best - scored.logprob,
                })
                .collect();
            // Of exactly equal candidates the one that was written is first.
            candidates.sort_by_key(|candidate| candidate.id != choice.id);
            TokenChoice::new(candidates)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let body = json!({ "completion_probabilities": [{
            "id": 7, "token": "a", "logprob": -1.0,
            "top_logprobs": [
                { "id": 7, "token": "a", "bytes": [97], "logprob": -1.0 },
                { "id": 9, "token": "b", "bytes": [98], "logprob": -1.5 },
            ],
        }]});
        let answer = format!("HTTP/1.1 200 OK\r\nServer: x\r\n\r\n{body}");
        let steps = read_steps(read_answer(answer.as_bytes()).unwrap()).unwrap();
        assert_eq!((steps[0].id(), steps[0].bytes()), (7, &b"a"[..]));
        assert!((steps[0].gap() - 0.5).abs() < 1e-12);
        assert_eq!(steps[0].rivals(0.6).count(), 1);
        assert_eq!(steps[0].rivals(0.4).count(), 0);
    }

    #[test]
    fn an_error_is_told() {
        let error = read_answer(b"HTTP/1.1 503 Busy\r\n\r\nloading").unwrap_err();
        assert!(error.to_string().contains("503: loading"), "{error}");
    }
}
