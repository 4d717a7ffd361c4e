//! What the screen shows, and what a key changes of it.

use std::collections::VecDeque;

use anyhow::Result;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::columns::{OPERATION_COLUMNS, SERVER_COLUMNS};
use super::rates::Rates;
use super::sample::Sample;

/// Rates of requests that are kept for the graph.
const GRAPH_POINTS: usize = 60;

/// The table that keys sort and scroll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Operations,
    Servers,
}

/// The order of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableOrder {
    pub(super) column: usize,
    pub(super) is_descending: bool,
    /// ScreenRows above the first that is shown.
    pub(super) scroll: usize,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) latest: Option<(Sample, Rates)>,
    /// Requests a second, the newest last.
    pub(super) graph: VecDeque<f64>,
    /// Why no server answers.
    pub(super) away: Option<String>,
    pub(super) focus: Focus,
    pub(super) operations: TableOrder,
    pub(super) servers: TableOrder,
    pub(super) is_paused: bool,
    pub(super) has_help: bool,
    pub(super) has_ended: bool,
}

impl Screen {
    pub(super) fn new() -> Screen {
        Screen {
            latest: None,
            graph: VecDeque::new(),
            away: None,
            focus: Focus::Operations,
            // By rate: what is done most stands first.
            operations: TableOrder { column: 1, is_descending: true, scroll: 0 },
            servers: TableOrder { column: 0, is_descending: false, scroll: 0 },
            is_paused: false,
            has_help: false,
            has_ended: false,
        }
    }

    /// A new sample, or why there is none. While the screen is paused it changes nothing, and the next rates are of a
    /// longer interval.
    pub(super) fn on_sample(&mut self, taken: Result<Sample>) {
        let sample = match taken {
            Ok(sample) => sample,
            Err(error) => {
                self.away = Some(format!("{error:#}"));
                return;
            }
        };
        self.away = None;
        if self.is_paused {
            return;
        }
        let rates = match &self.latest {
            Some((former, _)) => Rates::between(former, &sample),
            None => Rates::default(),
        };
        if let Some(per_s) = rates.sum(|operation| operation.per_s) {
            self.graph.push_back(per_s);
            if self.graph.len() > GRAPH_POINTS {
                self.graph.pop_front();
            }
        }
        self.latest = Some((sample, rates));
    }

    /// A key was pressed.
    pub(super) fn on_key(&mut self, key: KeyEvent) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if self.has_help {
            self.has_help = false;
            self.has_ended = is_control && key.code == KeyCode::Char('c');
            return;
        }
        let columns = match self.focus {
            Focus::Operations => OPERATION_COLUMNS.len(),
            Focus::Servers => SERVER_COLUMNS.len(),
        };
        let order = match self.focus {
            Focus::Operations => &mut self.operations,
            Focus::Servers => &mut self.servers,
        };
        match key.code {
            KeyCode::Char('c') if is_control => self.has_ended = true,
            KeyCode::Char('q') | KeyCode::Esc => self.has_ended = true,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => order.is_descending = !order.is_descending,
            KeyCode::Char('s') | KeyCode::Right => order.column = (order.column + 1) % columns,
            KeyCode::Left => order.column = (order.column + columns - 1) % columns,
            KeyCode::Up => order.scroll = order.scroll.saturating_sub(1),
            KeyCode::Down => order.scroll += 1,
            KeyCode::Home => order.scroll = 0,
            KeyCode::Tab => {
                self.focus = if self.focus == Focus::Operations { Focus::Servers } else { Focus::Operations };
            }
            _ => {}
        }
    }
}
