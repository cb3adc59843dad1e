package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// chromium is a browser that this program has started and talks to over two
// pipes, in JSON, each message ended by a zero byte (the DevTools protocol).
type chromium struct {
	process *exec.Cmd
	to      *os.File
	from    *bufio.Reader
	last    int
	session string // the page that is open

	// complaints are exceptions that the page did not catch.
	complaints []string
}

func startChromium(profileDir string) (*chromium, error) {
	name, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("%w (on Debian: apt-get install chromium)", err)
	}
	theirIn, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &chromium{to: to, from: bufio.NewReaderSize(from, 1<<20)}
	c.process = exec.Command(name,
		"--headless=new", "--remote-debugging-pipe", "--user-data-dir="+profileDir,
		"--no-sandbox", // which root may not have
		"--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
	c.process.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	theirIn.Close()
	theirOut.Close()
	// A browser that answers no more must not hold this program for ever.
	time.AfterFunc(2*time.Minute, func() { c.process.Process.Kill() })
	return c, nil
}

func (c *chromium) close() {
	_ = c.call("Browser.close", nil, nil) // it may be gone already
	c.to.Close()
	_ = c.process.Wait()
}

type object = map[string]any

// call sends one command and decodes its result into result, which may be nil.
func (c *chromium) call(method string, params object, result any) error {
	c.last++
	command := object{"id": c.last, "method": method}
	if params != nil {
		command["params"] = params
	}
	if c.session != "" {
		command["sessionId"] = c.session
	}
	b, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if _, err := c.to.Write(append(b, 0)); err != nil {
		return err
	}
	for {
		m, err := c.read()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", method, err)
		case m.ID != c.last:
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		default:
			return nil
		}
	}
}

// message is what the browser says: the answer to a command, or an event.
type message struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }

	Method string
	Params json.RawMessage
}

func (c *chromium) read() (m message, err error) {
	text, err := c.from.ReadBytes(0)
	if err != nil {
		return m, fmt.Errorf("the browser is gone: %w", err)
	}
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		return m, err
	}
	if m.Method == "Runtime.exceptionThrown" {
		c.complaints = append(c.complaints, string(m.Params))
	}
	return m, nil
}

// open shows a page, after the one before.
func (c *chromium) open(url string) error {
	c.session = ""
	var target struct{ TargetID string }
	if err := c.call("Target.createTarget", object{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var attached struct{ SessionID string }
	if err := c.call("Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return err
	}
	c.session = attached.SessionID
	for _, domain := range []string{"Runtime", "Page"} {
		if err := c.call(domain+".enable", nil, nil); err != nil {
			return err
		}
	}
	if err := c.window(1500, 950); err != nil {
		return err
	}
	if err := c.call("Page.navigate", object{"url": url}, nil); err != nil {
		return err
	}
	for {
		if m, err := c.read(); err != nil || m.Method == "Page.loadEventFired" {
			return err
		}
	}
}

func (c *chromium) window(width, height int) error {
	return c.call("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

func (c *chromium) dark(on bool) error {
	scheme := "light"
	if on {
		scheme = "dark"
	}
	return c.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// evaluate runs JavaScript in the page and decodes its value.
func (c *chromium) evaluate(expression string, value any) error {
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	if err := c.call("Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true}, &result); err != nil {
		return err
	}
	if e := result.ExceptionDetails; e != nil {
		return fmt.Errorf("%s: %s", expression, e.Exception.Description)
	}
	if value == nil {
		return nil
	}
	if result.Result.Value == nil {
		return errors.New(expression + " has no value")
	}
	return json.Unmarshal(result.Result.Value, value)
}

var keyCodes = map[string]int{"Enter": 13, "Escape": 27, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40}

// press presses and releases a key, as a reader does.
func (c *chromium) press(key string) error {
	down := object{"type": "keyDown", "key": key}
	if code := keyCodes[key]; code != 0 {
		down["windowsVirtualKeyCode"] = code
	} else {
		down["text"] = key
	}
	if key == "Enter" {
		down["text"] = "\r"
	}
	if err := c.call("Input.dispatchKeyEvent", down, nil); err != nil {
		return err
	}
	return c.call("Input.dispatchKeyEvent", object{"type": "keyUp", "key": key}, nil)
}

func (c *chromium) screenshot(file string) error {
	var shot struct{ Data string }
	if err := c.call("Page.captureScreenshot", object{"format": "png"}, &shot); err != nil {
		return err
	}
	b, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
