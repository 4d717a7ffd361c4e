//! Draws the screen: a header, four lines of sums, the table of operations, the table of servers, and the keys.
//!
//! Guarantees: any size of a terminal is drawn without a panic; on a small one the lines and columns of least use are
//! left out.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::app::{Focus, Screen, TableOrder};
use super::columns::{
    Grade, OPERATION_COLUMNS, SERVER_COLUMNS, ServerRow, TopColumn, bytes, free_share, known, rate, seconds,
};
use super::rates::{OpRate, Rates};
use super::sample::{Sample, ServerSample};

/// Heights of a bar, lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Bars of the graph of requests.
const GRAPH_WIDTH: usize = 20;
/// Cells of the bar of used space.
const GAUGE_WIDTH: usize = 12;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let mut area = ScreenRows { area: frame.area(), used: 0 };
    let Some((sample, rates)) = &screen.latest else {
        let words = screen.away.as_deref().unwrap_or("reading the first sample ...");
        area.line(frame, Line::from(vec!["frieze top".bold(), "  ".into(), Span::raw(words.to_owned())]));
        return;
    };
    area.line(frame, header(screen, sample));
    let height = frame.area().height;
    let mut lines = vec![requests(screen, rates, frame.area().width)];
    if height >= 14 {
        lines.extend([space(sample), chains(sample), clocks(sample)]);
    }
    for line in lines.into_iter().take(height.saturating_sub(5).into()) {
        area.line(frame, line);
    }
    for line in troubles(screen, sample).into_iter().take(usize::from(height / 6)) {
        area.line(frame, line);
    }
    let left = area.left();
    if left > 8 {
        area.line(frame, Line::default());
    }
    // A third for the servers, the rest for the operations; the keys stand last.
    let rows = server_rows(sample, rates);
    let of_servers = if left < 8 { 0 } else { (rows.len() as u16).min(left / 3).max(1) + 1 };
    let of_operations = area.left().saturating_sub(of_servers + 1);
    match &rates.operations {
        Some(operations) => table(
            frame,
            area.take(of_operations),
            OPERATION_COLUMNS,
            operations.iter().collect(),
            screen.operations,
            screen.focus == Focus::Operations,
        ),
        None => paragraph(frame, area.take(of_operations), without_operations(rates)),
    }
    if of_servers > 0 {
        let area = area.take(of_servers);
        table(frame, area, SERVER_COLUMNS, rows.iter().collect(), screen.servers, screen.focus == Focus::Servers);
    }
    area.last(frame, keys(screen));
    if screen.has_help {
        help(frame);
    }
}

/// The rows of the screen that are left.
struct ScreenRows {
    area: Rect,
    used: u16,
}

impl ScreenRows {
    fn left(&self) -> u16 {
        self.area.height.saturating_sub(self.used)
    }

    fn take(&mut self, height: u16) -> Rect {
        let height = height.min(self.left());
        let taken = Rect { y: self.area.y + self.used, height, ..self.area };
        self.used += height;
        taken
    }

    fn line(&mut self, frame: &mut Frame<'_>, line: Line<'_>) {
        let area = self.take(1);
        frame.render_widget(line, area);
    }

    fn last(&mut self, frame: &mut Frame<'_>, line: Line<'_>) {
        self.used = self.area.height.saturating_sub(1);
        self.line(frame, line);
    }
}

fn header(screen: &Screen, sample: &Sample) -> Line<'static> {
    let (words, color) = match (&screen.away, sample.health == "healthy") {
        (Some(_), _) => (" away ", Color::Red),
        (None, true) => (" healthy ", Color::Green),
        (None, false) => (" trouble ", Color::Red),
    };
    let up = sample.servers.iter().filter(|server| server.state == "up").count();
    let servers = match (sample.servers.len(), &sample.leader) {
        _ if sample.cluster.is_empty() => "one server".to_owned(),
        (count, Some(leader)) => format!("{up} of {count} servers up, leader {leader}"),
        (count, None) => format!("{up} of {count} servers up, no leader"),
    };
    let mut parts = vec![
        "frieze top".bold(),
        "  ".into(),
        Span::styled(words, Style::new().fg(Color::Black).bg(color).add_modifier(Modifier::BOLD)),
        format!("  {}  {servers}", sample.server).into(),
    ];
    if screen.is_paused {
        parts.push("  paused".yellow().bold());
    }
    // The time of the server, to the second.
    let time = sample.time.split('T').nth(1).and_then(|time| time.split('.').next()).unwrap_or_default();
    parts.push(format!("  {time}Z").dim());
    Line::from(parts)
}

fn label(text: &str) -> Span<'static> {
    format!("{text:<9}").cyan()
}

fn requests(screen: &Screen, rates: &Rates, width: u16) -> Line<'static> {
    let Some(operations) = &rates.operations else {
        return Line::from(vec![label("requests"), "not known yet, or no server exports metrics".dim()]);
    };
    let of = |value: fn(&OpRate) -> f64| rates.sum(value).unwrap_or(0.0);
    let slowest = operations.iter().filter_map(|operation| operation.p99_s).reduce(f64::max);
    let refused = of(|operation| operation.refused_per_s);
    let refused_text = format!("  refused {}/s", rate(refused));
    Line::from(vec![
        label("requests"),
        format!("{:>6}/s ", rate(of(|operation| operation.per_s))).bold(),
        graph(screen, if width < 100 { GRAPH_WIDTH / 2 } else { GRAPH_WIDTH }).green(),
        format!("  in {}/s", bytes(of(|operation| operation.received_bytes_per_s))).into(),
        format!("  out {}/s", bytes(of(|operation| operation.sent_bytes_per_s))).into(),
        if refused > 0.0 { refused_text.yellow() } else { refused_text.dim() },
        format!("  p99 {}", seconds(slowest)).into(),
    ])
}

/// The newest rates of requests as bars, the highest of them full.
fn graph(screen: &Screen, width: usize) -> String {
    let most = screen.graph.iter().copied().fold(0.0, f64::max);
    let newest = screen.graph.iter().skip(screen.graph.len().saturating_sub(width));
    let bar = |per_s: &f64| match most {
        most if most > 0.0 => BARS[((per_s / most * 7.0).round() as usize).min(7)],
        _ => BARS[0],
    };
    format!("{:>width$}", newest.map(bar).collect::<String>())
}

fn space(sample: &Sample) -> Line<'static> {
    let shares = sample.servers.iter().filter_map(|server| Some((free_share(server)?, server)));
    let Some((free, fullest)) = shares.min_by(|one, other| one.0.total_cmp(&other.0)) else {
        return Line::from(vec![label("space"), "not known".dim()]);
    };
    let used = (1.0 - free).clamp(0.0, 1.0);
    let full = (used * GAUGE_WIDTH as f64).round() as usize;
    let color = match free {
        free if free < 0.02 => Color::Red,
        free if free < 0.1 => Color::Yellow,
        _ => Color::Green,
    };
    let name = if sample.servers.len() > 1 { format!(" on {}", fullest.name) } else { String::new() };
    Line::from(vec![
        label("space"),
        Span::styled("█".repeat(full), Style::new().fg(color)),
        "░".repeat(GAUGE_WIDTH - full).dim(),
        format!(
            " {:.0} % of {}{name}, {} free; ",
            used * 100.0,
            known(fullest.capacity_bytes, bytes),
            known(fullest.free_bytes, bytes)
        )
        .into(),
        format!("{} live, ", known(sample.live_bytes, |live| bytes(live as f64))).into(),
        format!("{} with history", known(fullest.records_bytes, bytes)).into(),
    ])
}

fn chains(sample: &Sample) -> Line<'static> {
    if sample.cluster.is_empty() {
        return Line::from(vec![label("chains"), "one copy of everything: the server is alone".dim()]);
    }
    let chains = &sample.chains;
    let whole = format!("{} of {} whole", chains.whole, chains.count);
    let mut parts = vec![label("chains"), if chains.whole == chains.count { whole.into() } else { whole.red().bold() }];
    if chains.waiting > 0 {
        parts.push(format!(", {} waiting for a server", chains.waiting).red().bold());
    }
    let catch_up = format!(", catch-up {}", bytes(chains.catch_up_bytes as f64));
    parts.push(if chains.catch_up_bytes > 0 { catch_up.yellow() } else { catch_up.into() });
    parts.push(format!(", uncommitted {}", known(chains.uncommitted_bytes, bytes)).into());
    Line::from(parts)
}

fn clocks(sample: &Sample) -> Line<'static> {
    let largest = |of: fn(&ServerSample) -> Option<f64>| sample.servers.iter().filter_map(of).reduce(f64::max);
    let error = largest(|server| server.clock_error_s);
    let offset = largest(|server| server.clock_offset_s.map(f64::abs));
    let error_text = match error {
        Some(s) if s.is_infinite() => "error not known".to_owned(),
        error => format!("error {}", seconds(error)),
    };
    let mut parts = vec![label("clocks"), if error > Some(0.25) { error_text.yellow() } else { error_text.into() }];
    if !sample.cluster.is_empty() {
        let text = format!(", offset {}", seconds(offset));
        parts.push(if offset > Some(0.1) { text.red().bold() } else { text.into() });
    }
    parts.push(format!(", stamps ahead {}", seconds(largest(|server| server.clock_ahead_s))).into());
    let age = largest(|server| server.dirty_age_s);
    let text = format!("; not on disk for {}", seconds(age));
    parts.push(if age > Some(5.0) { text.red().bold() } else { text.into() });
    Line::from(parts)
}

/// Why no server answers, the troubles with their remedies, and servers whose metrics cannot be read.
fn troubles(screen: &Screen, sample: &Sample) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(away) = &screen.away {
        lines.push(Line::from(vec![label("away"), format!("{away}; trying again").red()]));
    }
    for trouble in &sample.troubles {
        lines.push(Line::from(vec![label("trouble"), trouble.what.clone().red()]));
        lines.push(Line::from(vec![label("remedy"), trouble.remedy.clone().into()]));
    }
    let of_servers = sample.servers.iter().filter_map(|server| Some((server, server.trouble.as_ref()?)));
    for (server, trouble) in of_servers.filter(|(server, _)| server.state == "up") {
        lines.push(Line::from(vec![label("metrics"), format!("{}: {trouble}", server.name).dim()]));
    }
    lines
}

fn without_operations(rates: &Rates) -> Vec<Line<'static>> {
    if rates.interval_s == 0.0 {
        return vec!["Rates follow with the second sample.".dim().into()];
    }
    vec![
        "Rates and latencies by operation come from the metrics of the servers, and none exports them here:".into(),
        "start them with --metrics 9470 (db1:9470 for other machines), or name the addresses: frieze top --metrics \
         HOST:PORT,..."
            .into(),
    ]
}

fn server_rows(sample: &Sample, rates: &Rates) -> Vec<ServerRow> {
    let rate = |index| rates.servers.get(index).cloned().unwrap_or_default();
    let servers = sample.servers.iter().cloned().enumerate();
    servers.map(|(index, server)| ServerRow { server, rate: rate(index) }).collect()
}

fn paragraph(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
}

/// Draws a table: its titles, and as many rows and columns as fit.
fn table<T>(
    frame: &mut Frame<'_>,
    area: Rect,
    columns: &[TopColumn<T>],
    mut rows: Vec<&T>,
    order: TableOrder,
    is_focused: bool,
) {
    if area.height == 0 {
        return;
    }
    let by = &columns[order.column.min(columns.len() - 1)];
    rows.sort_by(|one, other| {
        let ascending = by.compare(one, other);
        if order.is_descending { ascending.reverse() } else { ascending }
    });
    let shown = fitting(columns, area.width, order.column);
    let mut titles = Vec::new();
    for (index, column) in shown.iter().map(|index| (*index, &columns[*index])) {
        let arrow = if order.is_descending { "▼" } else { "▲" };
        let title = if index == order.column { format!("{}{arrow}", column.title) } else { column.title.to_owned() };
        let style = match index == order.column && is_focused {
            true => Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
            false => Style::new().add_modifier(Modifier::REVERSED),
        };
        titles.push(Span::styled(format!("{} ", padded(&title, column.width, column.is_right)), style));
    }
    let used: u16 = shown.iter().map(|index| columns[*index].width + 1).sum();
    let rest = " ".repeat(area.width.saturating_sub(used).into());
    titles.push(Span::styled(rest, Style::new().add_modifier(Modifier::REVERSED)));
    frame.render_widget(Line::from(titles), Rect { height: 1, ..area });
    // The last rows stay in view however far the reader scrolls.
    let room = usize::from(area.height - 1);
    let scroll = order.scroll.min(rows.len().saturating_sub(room));
    for (line, row) in rows.into_iter().skip(scroll).take(room).enumerate() {
        let cells = shown.iter().map(|index| {
            let column = &columns[*index];
            let text = format!("{} ", padded(&(column.text)(row), column.width, column.is_right));
            Span::styled(text, style_of((column.grade)(row)))
        });
        let place = Rect { y: area.y + 1 + line as u16, height: 1, ..area };
        frame.render_widget(Line::from(cells.collect::<Vec<_>>()), place);
    }
}

/// The columns that fit into a width: those of the lowest rank, and the one that sorts.
fn fitting<T>(columns: &[TopColumn<T>], width: u16, sorted: usize) -> Vec<usize> {
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|index| if *index == sorted { 1 } else { columns[*index].rank });
    let (mut shown, mut used) = (Vec::new(), 0);
    for index in by_rank {
        let more = columns[index].width + 1;
        if used + more > width.saturating_add(1) && !shown.is_empty() {
            break;
        }
        used += more;
        shown.push(index);
    }
    shown.sort_unstable();
    shown
}

/// The text in a column; a longer one loses its end.
fn padded(text: &str, width: u16, is_right: bool) -> String {
    let width = usize::from(width);
    let text: String = text.chars().take(width).collect();
    if is_right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn style_of(grade: Grade) -> Style {
    match grade {
        Grade::Plain => Style::new(),
        Grade::Dim => Style::new().add_modifier(Modifier::DIM),
        Grade::Warn => Style::new().fg(Color::Yellow),
        Grade::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
    }
}

fn keys(screen: &Screen) -> Line<'static> {
    let mut parts = Vec::new();
    for (key, what) in [
        ("q", "quit"),
        ("?", "help"),
        ("s", "sort"),
        ("r", "turn"),
        ("tab", if screen.focus == Focus::Operations { "servers" } else { "operations" }),
        ("space", if screen.is_paused { "go on" } else { "pause" }),
    ] {
        parts.extend([key.bold(), format!(" {what}   ").dim()]);
    }
    Line::from(parts)
}

fn help(frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> = HELP.lines().map(Line::from).collect();
    let area = frame.area();
    let (width, height) = (area.width.min(66), area.height.min(lines.len() as u16 + 2));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" frieze top ")), place);
}

const HELP: &str = "\
q, Esc      quit                    ?       this help
s, right    sort by the next column left    by the one before
r           turn the order          tab     the other table
up, down    scroll                  space   pause

RATE/S, IN/S, OUT/S    requests and bytes of payload a second
P50, P99               half of the requests, 99 of 100, took no
                       longer, by buckets of the server
UNSYNCED               acknowledged, not on stable storage yet
CLOCK                  beside the leader's
* leads.  Red: look at docs/operating.md.  Any key goes back.";
