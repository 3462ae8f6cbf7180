//! What a session does on a command.

use super::prompt::{check_fits, encode_prompt};
use super::run::{Gate, Session};
use super::snapshot::Command;

impl Session {
    /// Obeys a command. Returns `false` for [`Command::Quit`].
    pub fn obey(&mut self, command: Command) -> bool {
        self.message = None;
        match command {
            Command::Quit => return false,
            Command::TogglePause | Command::StepToken | Command::StepLayer if self.is_over() => {
                self.note("generation has ended: restart it or give another prompt");
            }
            Command::TogglePause => {
                let running = self.gate == Gate::Running;
                self.leave_token();
                self.gate = if running { Gate::Paused } else { Gate::Running };
            }
            Command::StepToken => {
                // Inside a token the rest of it is the step.
                let inside = self.engine.in_step();
                self.leave_token();
                self.gate = if inside { Gate::Paused } else { Gate::OneToken };
            }
            Command::StepLayer => self.gate = Gate::OneLayer,
            Command::Restart => self.restart(),
            Command::NewPrompt(prompt) => self.new_prompt(prompt),
            Command::ResetStats => self.reset_statistics(),
            Command::Apply(id) => self.apply(&id),
            Command::Undo => self.undo(),
            Command::TryAll => self.try_all(),
            Command::Bandit(on) => self.switch_bandit(on),
            Command::Trace(source) => self.trace(&source),
            Command::StopTrace => self.stop_tracing(),
            Command::FollowTrace(on) => self.follow(on),
            Command::KeepTrace => self.keep_trace(),
            Command::Tracer(kind, on) => self.switch_tracer(kind, on),
            Command::FocusHead(layer, head) => self.focus_head(layer, head),
            Command::MeasureError(on) => self.measure_error(on),
            Command::Scrub(_) => {
                self.complain("this session runs: only a recording can be scrubbed")
            }
        }
        true
    }

    fn restart(&mut self) {
        if self.has_failed() {
            // Nothing of a failed engine is kept, its threads least of all.
            self.engine.truncate(0);
            if let Err(e) = self.rebuild(&self.setup()) {
                self.complain(e);
                return;
            }
        }
        self.start_run();
        self.clear_profile();
        self.rates.clear();
        self.faults.clear();
        self.gate = Gate::Running;
    }

    fn new_prompt(&mut self, prompt: String) {
        let ids = encode_prompt(&self.loaded, &prompt, self.options.chat).and_then(|ids| {
            check_fits(&ids, &self.options.config)?;
            Ok(ids)
        });
        match ids {
            Ok(ids) => {
                // Tokens of two prompts are not to be compared: contexts differ in length.
                self.advice.race = None;
                if self.advice.measuring.is_some() {
                    self.break_off("there is another prompt");
                }
                self.prompt_ids = ids;
                self.options.prompt = prompt;
                self.forget_measurement();
                self.restart();
            }
            Err(e) => self.complain(e.to_string()),
        }
    }

    /// Figures of the prompt stay: they are this run's, and it does not read the prompt again.
    fn reset_statistics(&mut self) {
        self.clear_profile();
        self.rates.clear_decode();
        self.faults.clear();
        self.note("statistics cleared");
    }
}
