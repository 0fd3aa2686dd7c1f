"""The server and the browser as the tests of the page use them."""

import atexit
import json
import subprocess
import time
import urllib.error
import urllib.request

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys


class Server:
    """`lantern serve` on a free port; `url` ends in no slash."""

    def __init__(self, lantern, model, *arguments):
        command = [lantern, "serve", model, "--port", "0", "--kv-cache-memory", "64Mi", "--threads", "1", "--quiet",
                   "--no-access-log", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # also where a test fails
        for line in self.process.stdout:
            if line.startswith("listens on"):
                self.url = line.split()[2].rstrip(",")
            if line.startswith("curl"):
                return
        raise AssertionError("the server does not start")

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read().decode()

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode()

    def metric(self, name):
        """The sum of the samples of that name."""
        lines = [line for line in self.get("/metrics")[2].splitlines() if line.startswith(name + "{")]
        assert lines, f"no metric {name}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0


def wait(condition, why, seconds=30):
    """What `condition` gives once that is true."""
    end = time.time() + seconds
    while time.time() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"this never came: {why}")


class Page:
    """The page in a browser of its own, with nothing kept from before."""

    def __init__(self, url, dark=False):
        options = webdriver.ChromeOptions()
        # The sandbox wants another user than root, and /dev/shm is small in containers.
        for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--lang=en"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        atexit.register(self.driver.quit)
        self.driver.set_window_size(1280, 900)
        self.prefer("dark" if dark else "light")
        self.driver.get(url + "/")

    def close(self):
        """Fails where the console has an error."""
        wrong = [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        self.driver.quit()
        assert not wrong, wrong

    def prefer(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys):
        """Keys to whatever has the focus; those before the last are held."""
        chain = ActionChains(self.driver)
        for key in keys[:-1]:
            chain.key_down(key)
        chain.send_keys(keys[-1])
        for key in keys[:-1]:
            chain.key_up(key)
        chain.perform()

    def focused(self):
        return self.driver.switch_to.active_element

    def tab_to(self, selector, *held):
        """Goes there as somebody without a mouse does."""
        for _ in range(80):
            if self.run("return document.activeElement?.matches(arguments[0])", selector):
                return self.focused()
            self.press(*held, Keys.TAB)
        raise AssertionError(f"the tab key never comes to {selector}")

    def ready(self):
        wait(lambda: self.one("#state").text == "ready", "the state is ready")

    def set(self, **fields):
        """Of the settings, as if typed."""
        for name, value in fields.items():
            self.run("""
                const field = document.querySelector(`#fields [name="${arguments[0]}"]`);
                if (field.type === "checkbox") field.checked = arguments[1]; else field.value = arguments[1];
                field.dispatchEvent(new Event("input", { bubbles: true }));""", name, value)

    def idle(self):
        return not self.one("#stop").is_displayed()

    def ask(self, text):
        """Types it, sends it, and gives the answer's text once that is whole."""
        answers = len(self.all(".assistant"))
        self.one("#prompt").send_keys(text, Keys.ENTER)
        return self.answer(answers + 1)

    def answer(self, count):
        """The text of the last answer, of `count` that there are then."""
        wait(lambda: len(self.all(".assistant")) == count and self.idle(), "an answer")
        return self.all(".assistant > .body")[-1].text
