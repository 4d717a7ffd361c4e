"""The console as people use it."""

import os
import pathlib
import unittest

from console_server import ConsoleServer
from playwright.sync_api import expect, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PICTURES = [ROOT / "docs" / "pictures" / name for name in ["carpet.png", "wave-beside-hdfs.png"]]
AXE = (pathlib.Path(os.environ["NODE_MODULES"]) / "axe-core" / "axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# What answers with a status that the browser reports as an error, on purpose.
REFUSED = {"absent": 404, "refusal": 400}


class ConsoleTest(unittest.TestCase):
    """One server and one browser for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.server = ConsoleServer()
        cls.server.fill(PICTURES)
        cls.playwright = sync_playwright().start()
        # Root has no sandbox in a container.
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        cls.chromium = cls.playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=arguments)

    @classmethod
    def tearDownClass(cls):
        cls.chromium.close()
        cls.playwright.stop()
        cls.server.close()

    def page(self, width=1200, scheme="light", **options):
        """A page of a browser that is signed in; its errors fail the test."""
        context = self.chromium.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme, **options)
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(20_000)
        self.errors = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: (self.errors.append(f"a script ran: {dialog.message}"), dialog.dismiss()))
        page.goto(self.server.link())
        page.get_by_role("button", name="Sign in as").click()
        page.wait_for_url("**/files/")
        return page

    def settle(self, page):
        """Waits until the page asks for nothing more."""
        page.wait_for_load_state("networkidle")

    def check_errors(self, allowed=()):
        """Nothing went wrong in the page but what is allowed."""
        self.assertEqual([error for error in self.errors if not any(text in error for text in allowed)], [])


class Views(ConsoleTest):
    """Every page, wide and narrow, light and dark."""

    def look_at_all(self, width, scheme):
        page = self.page(width, scheme)
        hosts = set()
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        for name, url in self.server.views().items():
            with self.subTest(view=name):
                self.errors.clear()
                status = page.goto(url).status
                self.assertEqual(status, REFUSED.get(name, 200))
                if name != "cluster":
                    self.settle(page)
                self.check_errors(["status of 404", "status of 400"] if name in REFUSED else ())
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width, "it scrolls sideways")
                page.evaluate(AXE)
                found = page.evaluate("tags => axe.run({runOnly: tags})", RULES)["violations"]
                words = [f"{rule['id']}: {node['html'][:120]} {node['failureSummary'][:300]}" for rule in found for node in rule["nodes"]]
                self.assertFalse(words, "\n".join(words))
                if os.environ["PICTURES"] and name in SHOWN.get((width, scheme), {}):
                    self.take(page, f"console-{SHOWN[width, scheme][name]}.png", width)
        self.assertEqual(hosts, {self.server.host}, "a page asks other hosts")

    def take(self, page, name, width):
        """A screenshot for docs/pictures."""
        page.wait_for_timeout(12_000 if "cluster" in name else 300)
        height = min(page.evaluate("document.documentElement.scrollHeight"), 1000)
        page.screenshot(path=f"{os.environ['PICTURES']}/{name}", clip={"x": 0, "y": 0, "width": width, "height": height}, full_page=True)

    def test_wide_and_light(self):
        self.look_at_all(1200, "light")

    def test_wide_and_dark(self):
        self.look_at_all(1200, "dark")

    def test_narrow_and_light(self):
        self.look_at_all(320, "light")

    def test_narrow_and_dark(self):
        self.look_at_all(320, "dark")


# Views of docs/pictures: what they are called there.
SHOWN = {
    (1200, "light"): {"files-then": "files", "text": "versions", "cluster": "cluster"},
    (1200, "dark"): {"compare-table": "compare"},
    (320, "light"): {"table": "narrow"},
}


class Slider(ConsoleTest):
    """The slider, and what else leads to an instant."""

    def listed(self, page):
        """The names that are shown."""
        return page.locator("table.names th[scope=row] a").all_text_contents()

    def test_dragging_it_shows_the_directory_as_it_was(self):
        page = self.page()
        page.goto(f"{self.server.url}/files/reports")
        self.settle(page)
        self.assertNotIn("draft-3.txt", self.listed(page))
        # To the first instant, where there is nothing, and by the arrow keys to where the drafts are.
        box = page.locator("#slider").bounding_box()
        page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2, steps=6)
        page.mouse.up()
        page.get_by_text("It is there at").wait_for()
        self.assertIn("at=", page.url)
        self.assertIn("past", page.locator("#time").get_attribute("class"))
        page.goto(f"{self.server.url}/files/reports?at={self.server.then}")
        self.assertIn("draft-3.txt", self.listed(page))
        page.locator("#slider").focus()
        page.keyboard.press("End")
        expect(page.locator("#state")).not_to_contain_text("draft-3")
        self.assertNotIn("draft-3.txt", self.listed(page))
        self.assertNotIn("at=", page.url)
        self.check_errors(["status of 404"])

    def test_steps_lead_from_change_to_change(self):
        page = self.page()
        page.goto(f"{self.server.url}/files/reports")
        self.settle(page)
        page.get_by_role("link", name="← change").click()
        expect(page.locator("#state")).to_contain_text("draft-4.txt")
        self.assertNotIn("final.txt", self.listed(page), "the rename is taken back")
        page.get_by_role("link", name="← change").click()
        expect(page.locator("#state")).to_contain_text("draft-3.txt")
        page.get_by_role("link", name="change →").click()
        expect(page.locator("#state")).not_to_contain_text("draft-3.txt")
        self.check_errors()

    def test_an_instant_can_be_typed_and_nonsense_is_explained(self):
        page = self.page()
        page.goto(f"{self.server.url}/files/reports")
        page.get_by_label("Instant", exact=True).fill(self.server.then)
        page.get_by_role("button", name="Go").click()
        page.get_by_role("link", name="draft-3.txt").wait_for()
        page.get_by_label("Instant", exact=True).fill("next week")
        page.get_by_role("button", name="Go").click()
        page.get_by_text("names no instant").wait_for()
        self.check_errors(["status of 400"])

    def test_more_names_arrive_below(self):
        page = self.page()
        page.goto(f"{self.server.url}/files/names")
        for count in [401, 451]:
            page.get_by_role("link", name="More names").click()
            # One row leads to the directory above.
            expect(page.locator("table.names tbody tr")).to_have_count(count)
        self.check_errors()

    def test_a_server_that_is_away_is_said(self):
        server = ConsoleServer()
        self.addCleanup(server.scratch.cleanup)
        server.run("mkdir", "/d")
        mine, type(self).server = self.server, server
        try:
            page = self.page()
            self.settle(page)
            server.kill()
            page.locator("#slider").focus()
            page.keyboard.press("ArrowLeft")
            page.get_by_text("The server does not answer").first.wait_for()
        finally:
            type(self).server = mine
            server.process.stdout.close()

    def test_a_new_file_system_is_welcomed_with_the_film(self):
        server = ConsoleServer()
        self.addCleanup(server.close)
        mine, type(self).server = self.server, server
        try:
            page = self.page()
            page.get_by_role("img", name="Two films of one wave").wait_for()
            page.get_by_role("button", name="Pause").click()
            page.get_by_role("button", name="Play").wait_for()
            page.evaluate(AXE)
            found = page.evaluate("tags => axe.run({runOnly: tags})", RULES)["violations"]
            self.assertEqual([rule["id"] for rule in found], [])
            if os.environ["PICTURES"]:
                page.screenshot(path=f"{os.environ['PICTURES']}/console-welcome.png")
            self.check_errors()
        finally:
            type(self).server = mine


class Changing(ConsoleTest):
    """Restore and undo."""

    def test_by_keyboard_alone_a_deleted_file_comes_back(self):
        page = self.page()
        page.goto(f"{self.server.url}/deleted/reports")
        self.settle(page)
        self.assertEqual(self.press_until(page, "Restore… draft-3.txt"), "A")
        page.keyboard.press("Enter")
        page.wait_for_url("**/restore/**")
        self.assertEqual(self.press_until(page, "Restore"), "BUTTON")
        page.keyboard.press("Enter")
        page.get_by_text("Done:").wait_for()
        self.assertEqual(self.server.run("cat", "/reports/draft-3.txt"), "draft\n")
        self.press_until(page, "Undo this…")
        page.keyboard.press("Enter")
        page.wait_for_url("**/undo/**")
        self.press_until(page, "Undo")
        page.keyboard.press("Enter")
        page.get_by_text("Done:").wait_for()
        self.assertNotIn("draft-3.txt", self.server.run("ls", "/reports"))
        page.goto(f"{self.server.url}/sessions")
        page.get_by_text("Restored /reports/draft-3.txt to").wait_for()
        self.check_errors()

    def press_until(self, page, words):
        """Presses Tab until what has these words has the focus, which can be seen: its kind."""
        for _ in range(80):
            page.keyboard.press("Tab")
            script = "[document.activeElement.textContent.trim(), document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"
            text, kind, outline = page.evaluate(script)
            self.assertNotEqual(outline, "none", f"{kind} {text} shows no focus")
            if " ".join(text.split()) == words:
                return kind
        self.fail(f"no Tab leads to {words}")

    def test_the_first_tab_skips_to_the_content(self):
        page = self.page()
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.textContent"), "Skip to the content")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        self.assertTrue(page.evaluate("document.querySelector('main').contains(document.activeElement)"))

    def test_without_scripts_everything_works(self):
        page = self.page(java_script_enabled=False)
        page.goto(f"{self.server.url}/files/reports/may.txt")
        page.get_by_role("button", name="Compare the two").click()
        page.get_by_text("Revenue rose by a tenth.").wait_for()
        page.goto(f"{self.server.url}/files/reports")
        page.get_by_role("link", name="← change").click()
        page.wait_for_url("**/files/reports?at=*")
        page.get_by_label("Instant", exact=True).fill(self.server.then)
        page.get_by_role("button", name="Go").click()
        page.get_by_role("link", name="Restore this directory").click()
        page.get_by_text("The plan").wait_for()
        page.get_by_role("link", name="Leave it").click()
        page.get_by_role("link", name="draft-3.txt").wait_for()

    def test_the_cluster_is_plotted(self):
        page = self.page()
        page.goto(f"{self.server.url}/cluster")
        page.locator("#plots canvas").first.wait_for()
        self.assertEqual(page.locator("#plots canvas").count(), 3)
        self.check_errors()

    def test_signing_out_ends_it(self):
        page = self.page()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Sign in").wait_for()
        page.goto(f"{self.server.url}/files/")
        page.get_by_text("frieze console login").wait_for()


if __name__ == "__main__":
    unittest.main()
