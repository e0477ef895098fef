package portal_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	protocol "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var shots = flag.String("shots", "", "directory in which screenshots of the portal are left, to be looked at")

// axeVersion is the release of axe-core that judges the pages.
const axeVersion = "4.14.1"

// need skips a test for want of something that is installed with a command; where CI runs
// it is a failure, because there nobody reads what was skipped.
func need(t *testing.T, what, command string) {
	t.Helper()
	text := fmt.Sprintf("NOT TESTED: the portal in a browser, because there is no %s. Install it: %s", what, command)
	if os.Getenv("CI") != "" {
		t.Fatal(text)
	}
	fmt.Fprintln(os.Stderr, text)
	t.Skip(text)
}

// browser starts a headless Chromium of the test's own.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		need(t, "Chromium", "make browser (Debian: apt-get install chromium)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil { // its context is the browser's, so it has no timeout
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(ctx, 8*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// axe gives the source of axe-core, which npm fetches once for a machine.
func axe(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "stepwell-test", "axe-core-"+axeVersion)
	file := filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	if source, err := os.ReadFile(file); err == nil {
		return string(source)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		need(t, "npm, which fetches axe-core", "apt-get install npm")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "install", "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", dir, "axe-core@"+axeVersion)
	if out, err := install.CombinedOutput(); err != nil {
		need(t, "axe-core: "+strings.TrimSpace(string(out)), "npm install axe-core@"+axeVersion)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// view is how a person looks at the portal.
type view struct {
	name    string
	width   int64
	dark    bool
	scripts bool
}

func (v view) begin() step {
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	return chromedp.Steps(
		chromedp.EmulateViewport(v.width, 900),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, media)
			return err
		}),
		scripts(v.scripts),
	)
}

type step = chromedp.Action[chromedp.Void]

// scripts lets pages run scripts, or none.
func scripts(on bool) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
		return err
	})
}

// person is a browser with a service in it.
type person struct {
	t    *testing.T
	ctx  context.Context
	view view
	axe  string
	shot int
}

func (p *person) do(steps ...step) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatalf("%s: %v", p.view.name, err)
	}
}

// violation is what axe-core finds.
type violation struct {
	ID    string   `json:"id"`
	Help  string   `json:"help"`
	Nodes []string `json:"nodes"`
}

// of is the value of an action.
func of[T any](p *person, a chromedp.Action[T]) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, a)
	if err != nil {
		p.t.Fatalf("%s: %v", p.view.name, err)
	}
	return v
}

// sees waits until the page's heading says something.
func (p *person) sees(heading string) {
	p.t.Helper()
	p.do(chromedp.WaitVisible(`//h1[contains(., "` + heading + `")]`))
}

// press clicks a button or a link by its text within a part of the page.
func (p *person) press(within, text string) {
	p.t.Helper()
	p.do(chromedp.Click(within + `//*[self::button or self::a or self::summary][normalize-space()="` + text + `"]`))
}

// row is the part of the page about a system.
func row(name string) string { return `//li[.//h2[.="` + name + `"]]` }

// types fills in the field with a label.
func (p *person) types(within, label, text string) {
	p.t.Helper()
	p.do(chromedp.SendKeys(within+`//input[@id=//label[.="`+label+`"]/@for]`, text))
}

// judge checks the page: nothing is wider than the screen, no secret is in it, and axe-core
// finds no violation. With -shots it leaves a screenshot.
func (p *person) judge(name string) {
	p.t.Helper()
	p.do(scripts(true)) // for what follows; the page has none of its own
	html := of(p, chromedp.OuterHTML(chromedp.CSS("html")))
	width := of(p, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
	p.do(chromedp.Evaluate[chromedp.Void](p.axe))
	violations := of(p, chromedp.Evaluate[[]violation](`axe.run().then(r => r.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.map(n => n.html)})))`, chromedp.EvalAwaitPromise))
	if *shots != "" {
		p.shot++
		shot := of(p, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(*shots, fmt.Sprintf("%s-%02d-%s.png", p.view.name, p.shot, name)), shot, 0o644); err != nil {
			p.t.Error(err)
		}
	}
	p.do(scripts(p.view.scripts))
	if width > p.view.width {
		p.t.Errorf("%s, %s: the page is %d pixels wide, the screen %d", p.view.name, name, width, p.view.width)
	}
	for _, v := range violations {
		p.t.Errorf("%s, %s: axe: %s (%s): %q", p.view.name, name, v.Help, v.ID, v.Nodes)
	}
	if strings.Contains(html, canary) {
		p.t.Errorf("%s, %s: a secret is in the page", p.view.name, name)
	}
	if strings.Contains(html, "<script") {
		p.t.Errorf("%s, %s: a script is in the page", p.view.name, name)
	}
}

// TestInBrowser goes the whole way, from the link to a run that uses the credentials just
// entered, on a phone and on a desk, in light and dark, with and without scripts.
func TestInBrowser(t *testing.T) {
	t.Parallel()
	source := axe(t)
	ctx := browser(t)
	s := start(t, nil)
	auth := startAuth(t)
	s.tenants(echo(t), auth)
	for _, v := range []view{{"phone-light", 360, false, false}, {"desk-dark", 1280, true, true}, {"phone-dark", 360, true, true}, {"desk-light", 1280, false, false}} {
		t.Run(v.name, func(t *testing.T) {
			tab, cancel := chromedp.NewContext(ctx)
			defer cancel()
			p := &person{t: t, ctx: tab, view: v, axe: source}
			p.do(v.begin())
			s.t = t
			p.wholeWay(s, auth)
		})
	}
}

func (p *person) wholeWay(s *service, auth *authServer) {
	t := p.t
	user := s.endUser(object{"name": "Dana Fisher " + p.view.name, "allowedSystems": []string{"*"}})
	if status, run := s.runFor(user, "crm", "api_key"); status != http.StatusForbidden || !strings.Contains(fmt.Sprint(run.Error), "must connect: crm") {
		t.Fatalf("before: %d %+v", status, run)
	}
	link, token := s.link(user)
	p.do(chromedp.Navigate(link))
	p.sees("Connect your accounts")
	p.judge("link")
	p.press("", "Continue")
	p.sees("Your connections")
	address := of(p, chromedp.Location())
	if strings.Contains(address, token) || !strings.HasSuffix(address, "/v1/portal/systems") {
		t.Errorf("the address is %s", address)
	}
	p.judge("systems")

	crm := row("Customer records")
	p.types(crm, "API key", canary+"-1")
	p.types(crm, "Account ID", canary+"-2")
	p.press(crm, "Connect")
	p.do(chromedp.WaitVisible(`//*[@role="status"][contains(., "Customer records is connected.")]`))
	p.judge("connected")
	if _, run := s.runFor(user, "crm", "api_key"); run.Status != "success" || run.Data.Got != canary+"-1" {
		t.Fatalf("the run: %+v", run)
	}
	if _, run := s.runFor(user, "crm", "account-id"); run.Data.Got != canary+"-2" {
		t.Fatalf("the run: %+v", run)
	}

	p.press(crm, "Replace credentials")
	p.types(crm, "API key", canary+"-3")
	p.types(crm, "Account ID", canary+"-4\r") // the Enter key sends the form
	p.do(chromedp.WaitVisible(`//*[@role="status"]`), chromedp.WaitReady(crm+`//details[not(@open)]`))
	waitFor(t, func() bool { _, run := s.runFor(user, "crm", "api_key"); return run.Data.Got == canary+"-3" })

	p.press(row("Mail"), "Connect")
	p.sees("Continue to Mail")
	p.judge("sign-in")
	p.press("", "Continue to "+strings.TrimPrefix(auth.URL, "http://"))
	p.do(chromedp.WaitVisible(chromedp.CSS("#allow")), chromedp.Click(chromedp.CSS("#allow")))
	p.do(chromedp.WaitVisible(`//*[@role="status"][contains(., "Mail is connected.")]`))
	if _, run := s.runFor(user, "mail", "access_token"); run.Status != "success" || !strings.HasPrefix(run.Data.Got, "mail-access-") {
		t.Fatalf("the run: %+v", run)
	}

	p.press(crm, "Remove")
	p.sees("Remove your credentials for Customer records?")
	p.judge("remove")
	p.press("", "Keep them")
	p.sees("Your connections")
	p.press(crm, "Remove")
	p.press("//main", "Remove")
	p.do(chromedp.WaitVisible(`//*[@role="status"][contains(., "were removed")]`))
	if status, _ := s.runFor(user, "crm", "api_key"); status != http.StatusForbidden {
		t.Errorf("after removing, the run answers %d", status)
	}
	p.press("", "Sign out")
	p.sees("You have signed out")
	p.judge("left")
	p.do(chromedp.NavigateBack(), chromedp.Reload())
	p.sees("Your visit has ended")
	p.judge("ended")
}

// TestFramed: no page of another site can show the portal inside of it.
func TestFramed(t *testing.T) {
	t.Parallel()
	ctx := browser(t)
	s := start(t, nil)
	link, _ := s.link(s.endUser(object{"allowedSystems": []string{"*"}}))
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>framed</title><iframe src="%s"></iframe>`, link)
	}))
	defer evil.Close()
	frames := 0
	err := chromedp.Do(ctx, chromedp.Navigate(evil.URL), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		got, err := cdp.Call(ctx, t, protocol.GetFrameTree, cdp.Empty{})
		if err != nil {
			return err
		}
		for _, child := range got.FrameTree.ChildFrames {
			if strings.Contains(child.Frame.URL, "/v1/portal") {
				frames++
			}
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if frames > 0 {
		t.Error("the portal is shown in a frame")
	}
}

// TestKeyboard: everything can be reached and done with the keyboard alone.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	ctx := browser(t)
	s := start(t, nil)
	s.tenants(echo(t), nil)
	user := s.endUser(object{"name": "Kay", "allowedSystems": []string{"shop"}})
	link, _ := s.link(user)
	p := &person{t: t, ctx: ctx, view: view{"keyboard", 1280, false, false}}
	p.do(p.view.begin(), chromedp.Navigate(link))
	p.sees("Connect your accounts")
	p.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"))
	p.sees("Your connections")
	p.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\t"), chromedp.KeyEvent(canary), chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r")) // past “Sign out”
	p.do(chromedp.WaitVisible(`//*[@role="status"]`))
	if _, run := s.runFor(user, "shop", "token"); run.Data.Got != canary {
		t.Errorf("the run: %+v", run)
	}
}

// waitFor waits until something holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not become so")
		}
	}
}
