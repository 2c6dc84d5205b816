"""Rules that find secrets in outputs, as data: names of secrets, options of commands, and formats of keys and tokens.

Formats of vendors are those of detect-secrets 1.5 (Apache-2.0) and gitleaks 8 (MIT); the others are of this field.
detect-secrets itself is not used: 0.7 s to import, 36 kB/s (these rules: 5 MB/s and more), and four hits in each line
of ordinary output from its rules on entropy. A rule matches bytes; its groups ``h`` (before the secret) and ``t`` stay.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MARK: Final = "‹redacted›"
_MARK: Final = MARK.encode()

_NAMES: Final = (
    rb"(?:(?<!no)pass(?:word|wd|phrase|code)s?(?:[_-]?(?:in|out|old|new|hash|b64|base64))?\d?"
    rb"|secret(?:[_-]?(?:value|string|text|b64|base64|id))?|token(?:[_-]?(?:value|b64|secret))?|psk|jwt|credentials?"
    rb"|authtok|(?:bind|root|admin|user|db|ldap)_?pw|(?:mysql|user|root|admin|db|bmc|ipmi)_?pwd"
    rb"|(?:storage|jobcomp|user|root|admin|db|bind|ssh|become|sudo|smtp|mail|mysql|ipmi|bmc|ldap|http|proxy|auth|login"
    rb"|redfish|ilo|idrac|vault|chap)[_-]?pass"
    rb"|(?:secret|api|access|private|pre-?shared|auth|account|encryption|signing|certificate|client|license|sas)"
    rb"[ _-]?key(?:[_-]?(?:id|data|b64|base64))?)"
)
"""Ends of a secret's name."""
NAMED: Final = re.compile(_NAMES)
"""For text in lower case."""
WORDS: Final = (b"pass", b"secret", b"token", b"psk", b"jwt", b"credential", b"authtok", b"pw", b"key")
"""Every such name contains one of them."""

_Q: Final = rb"(?:\\*[\"'`]|&(?:quot|apos|#0*3[49]|#x2[27]);|\\+u002[27]|%2[27])"
"""A quote, as such or as it is written inside JSON (at any depth), XML and URLs."""
_COLOUR: Final = rb"(?:\x1b\[[\d;]{0,20}m){0,4}"
_SEP: Final = (
    _COLOUR + rb"[ \t]{0,40}" + _COLOUR + rb"(?:=>|:=|==?|:|%3[ad]|&#(?:61|58);|\\+u003[ad])" + _COLOUR
    + rb"[ \t]{0,40}" + _COLOUR
)  # fmt: skip
_NAME: Final = rb"(?<![\w./$-])[\w.-]{0,80}?" + _NAMES
_NOTHING: Final = (
    rb"(?:" + re.escape(_MARK) + rb"|<?hidden>?|\(hidden\)|\(null\)|\*+|null|none|true|false|yes|no|n/a)"
    rb"(?![^\s\"'`,;<)\]}\\&|%])"
)
"""Values that are no secrets although their name is that of one."""
_QUOTED: Final = rb"(?P<q>" + _Q + rb")(?!" + _NOTHING + rb")"
_IN_QUOTES: Final = rb"(?:(?!(?<!\\)(?P=q))[^\r\n])+"
"""Up to the quote of the same depth, or to the end of a line that was cut."""
_WORD: Final = rb"(?!" + _NOTHING + rb")(?:\\+ |(?!\\+[\"'`]|</|&quot;|%2[267])[^\s\"'`&|)])+"
_REST: Final = rb"(?:(?!\\+[nr\"']|[\"'][ \t]*(?:[,}\]\r\n]|$))[^\r\n])+"
"""Up to the end of the line, also of one inside a JSON string."""
_OPTION: Final = rb"(?!" + _NOTHING + rb")(?:[\"'][^\"'\r\n]+[\"']?|[^\s\"';|&]+)"
"""A value of an option, in quotes or not."""


class Rule(NamedTuple):
    """A rule, and strings of which the output, in lower case, must contain one: most outputs contain none."""

    needles: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


def _rule(needles: str, head: bytes, secret: bytes, tail: bytes = b"") -> Rule:
    text = rb"(?im)(?P<h>" + head + rb")(?:" + secret + rb")(?P<t>" + tail + rb")"
    return Rule(tuple(needles.encode().split(b";")) if needles else (), re.compile(text.replace(b"MARK", _MARK)))


def _format(needles: str, secret: bytes) -> Rule:
    """A format that needs no name; its case counts."""
    return Rule(tuple(needles.encode().split(b";")), re.compile(rb"(?P<h>)(?:" + secret + rb")(?P<t>)"))


NAMED_RULES: Final = (
    # <password>…</password>, <password type="x"><![CDATA[…
    _rule("", rb"<[\w:.-]{0,80}?" + _NAMES + rb"(?:[ \t][^<>\r\n]*)?>(?:<!\[CDATA\[)?(?!" + _NOTHING + rb")",
          rb"(?:(?!\]\]>)[^<\r\n])+", rb"(?=</|\]\]>|[ \t]*$)"),
    _rule("", rb"&lt;[\w:.-]{0,80}?" + _NAMES + rb"&gt;(?!" + _NOTHING + rb")", rb"(?:(?!&lt;)[^<\r\n])+"),
    # "password": "…", password = '…', \"password\": \"…\", password=&quot;…&quot;
    _rule("", _NAME + _Q + rb"?" + _SEP + rb"(?:[bruf]{1,2}(?=[\"']))?" + _QUOTED, _IN_QUOTES),
    # "passwords": ["…", "…"]
    _rule("", _NAME + rb"s?" + _Q + rb"?" + _SEP + rb"\[[ \t]*(?:" + _Q + rb"MARK" + _Q + rb"[ \t]*,[ \t]*){0,80}"
          + _QUOTED, _IN_QUOTES),
    # "password": 12345678
    _rule("", _NAME + rb"\\*\"" + _SEP, rb"\d{4,}(?=[\s,}])"),
    # an option among others: rw,secret=…,acl
    _rule("", rb"(?<=,)[\w.-]{0,80}?" + _NAMES + rb"=(?!" + _NOTHING + rb")", rb"[^\s,\"')]+"),
    _rule("", _NAME + rb"(?:=|%3d|&#61;|\\+u003d)", _WORD),
    _rule("", _NAME + rb"[ \t]{1,40}:?=[ \t]{0,40}(?!" + _NOTHING + rb")(?=[^\s\"'])", _REST),
    # a line of a document: password: …; except in nsswitch.conf
    _rule("", rb"(?:^|\\n)[ \t|#>*]{0,40}(?:- )?[\w -]{0,80}?" + _NAMES + rb"[ \t]{0,40}:[ \t]{1,40}(?!" + _NOTHING
          + rb"|(?:files|compat|systemd|sss|ldap|db|cache|winbind|nis)\b)(?=[^\s\"'{\[|>])", _REST),
    # on the next line: password:, password: |, "password":; on each line of a block
    _rule("", rb"^[ \t]*(?:- )?" + _Q + rb"?[\w. -]{0,80}?" + _NAMES + _Q
          + rb"?[ \t]*:[ \t]*(?:[|>][+-]?\d?)?[ \t]*\r?\n(?:[ \t]+MARK\r?\n){0,7}[ \t]+[\"']?(?!" + _NOTHING
          + rb"|(?:- )?[\"']?[\w. -]+[\"']?[ \t]*[:=]|[{\[])(?=[^\s\"'])", rb"[^\r\n\"']+"),
    _rule("", rb"<[\w:.-]{0,80}?" + _NAMES + rb"(?:[ \t][^<>\r\n]*)?>[ \t]*\r?\n[ \t]*(?!" + _NOTHING + rb")(?=[^\s<])",
          rb"[^<\r\n]+?", rb"(?=[ \t]*(?:\r?\n[ \t]*</|\r?\Z))"),
    # within a line: … password: …
    _rule("", _NAME + rb"[ \t]{0,4}::?[ \t]{1,4}(?!files\b|[|>][+-]?\d?[ \t]*\r?$|" + _NOTHING + rb")",
          rb"[^\s\"'`,;<>(){}\[\]\\]+"),
    _rule("", _NAME + rb":(?!" + _NOTHING + rb")(?=[^\s\"',;]*[0-9])", rb"[^\s\"',;:/\\]{5,}"),
    _rule("", _NAME + rb"\x1b\[0?m:[ \t]{0,4}" + _COLOUR + rb"(?!" + _NOTHING + rb")", rb"[^\s\"'\x1b]+"),
    # a prompt and its answer, a sentence, the line of a configuration file or of a list of variables
    _rule("", rb"\bpass(?:word|code|phrase)[ \t]+(?:for|of)[ \t]+[^\s:]{1,80}:[ \t]+(?!" + _NOTHING + rb")", rb"\S+"),
    _rule("", rb"\bpass(?:word|code|phrase)[ \t]+(?:is|was|set to)[ \t]+[\"']?(?!" + _NOTHING + rb")(?=\S*\d)",
          rb"[^\s\"']{6,}"),
    _rule("", rb"^[ \t]*(?:(?:root)?(?:bind)?pw|[A-Za-z0-9]+_(?:api_key|token|password|secret)"
          rb"|(?:api|access|auth|secret)_?(?:key|token))"
          rb"[ \t]+(?!" + _NOTHING + rb")", rb"[^\s#=:|]{8,}(?=[ \t]*$)"),
    # a table: | password | … |
    _rule("", rb"\|[ \t]*[\w. -]{0,80}?" + _NAMES + rb"[ \t]*\|[ \t]*(?!" + _NOTHING + rb")(?=[^\s|])",
          rb"[^|\r\n]+?", rb"(?=[ \t]*\|)"),
    # two columns: the password stands alone behind blanks
    _rule("", rb"^[ \t]*(?:[\w-]{1,40}[_-])?(?:password|passphrase|secret)(?:[ \t]{2,40}|\t)(?!" + _NOTHING
          + rb"|required|requisite|sufficient|optional|include)", rb"[^\s#]+(?=[ \t]*$)"),
    # --password …, '--password', '…'
    _rule("", rb"(?<![\w-])--?[\w-]{0,60}?" + _NAMES + rb"[ \t]+(?!-)", _OPTION),
    _rule("", rb"--?[\w-]{0,60}?" + _NAMES + rb"\\*[\"'][ \t]*,[ \t]*" + _QUOTED, _IN_QUOTES),
    # equipment: username x secret sha512 …
    _rule("", rb"\b(?:password|secret)[ \t]+(?:[05789]|sha512|encrypted|cleartext|plain-text|capsulated)[ \t]+",
          _OPTION),
)  # fmt: skip
"""For lines that contain the name of a secret, with those that follow where the line is ``OPEN``."""
OPEN: Final = re.compile(rb"(?::|[|>][+-]?\d?)[ \t]*\r?\Z")
"""End of a line whose value may be on the next ones."""
FOLLOWING: Final = 8
"""Lines of such a value, at most."""

_PIPED: Final = (
    rb"(?:passwd|chpasswd|kinit|cryptsetup|sudo[ \t]+-S|(?:docker|podman|helm|skopeo|nerdctl|oras)[ \t][^|]*login)"
)
_LOGINS: Final = rb"(?:docker|podman|nerdctl|helm|skopeo|buildah|crane|oras|apptainer|singularity|az|oc|argocd|ngc)"
_TOOLS: Final = (
    rb"(?:racadm|ilorest|redfishtool|hponcfg|ipmi-\w+|ipmipower|bmc-config|onecli|mkuser|chuser|mongosh?|mongodump|smbclient"
    rb"|sqlcmd|sum[ \t]+-i)"
)
_SAME: Final = rb"[^\r\n;|]{0,300}?"
"""The rest of one simple command."""

OTHER_RULES: Final = (
    # Authorization: Bearer …; the scheme stays
    _rule("authorization", rb"\b(?:proxy-)?authorization" + _Q + rb"?[ \t]{0,4}(?:[:=]|%3a(?:%20|\+)?)[ \t]{0,4}" + _Q
          + rb"?(?>(?:bearer|basic|digest|token|negotiate)(?:[ ]+|%20|\+))?+(?!" + _NOTHING + rb")(?=[^\s\"'\\])",
          rb"(?:(?!\\+[\"'])[^\r\n\"'])+"),
    _rule("bearer", rb"\bbearer(?: +|%20)", rb"[A-Za-z0-9._~+/-]{12,}=*"),
    _rule("cookie:", rb"(?<![\w-])(?:set-)?cookie:[ \t]*(?!MARK)", rb"[^\s\"'][^\r\n\"']*"),
    # {"name": "DB_PASSWORD", "value": "…"}, <property name="password" value="…"/>
    _rule("value", rb"\b(?:name|key|id|property)" + _Q + rb"?[ \t]*[=:][ \t]*" + _Q + rb"?[\w.-]{0,80}?" + _NAMES + _Q
          + rb"?[\s,;]{1,80}" + _Q + rb"?value" + _Q + rb"?[ \t]*[=:][ \t]*" + _QUOTED, _IN_QUOTES),
    _rule("value", rb"\b(?:name|key)[ \t]*:[ \t]*[\w.-]{0,80}?" + _NAMES + rb"[ \t]*\r?\n[ \t]*value:[ \t]*(?!"
          + _NOTHING + rb")(?=[^\s\"'|>])", rb"[^\r\n]+"),
    # https://user:password@host, https://token@host, …?sig=…
    _rule("://", rb"(?<![a-z0-9])[a-z][a-z0-9+.-]{0,30}://[^\s/:@\"'<>\\]*:(?!\d{1,5}/)", rb"[^\s@\"'<>\\]+(?=@)"),
    _rule("://", rb"(?<![a-z0-9])[a-z][a-z0-9+.-]{0,30}://(?=[^\s/:@]*\d)(?=[^\s/:@]*[a-z])",
          rb"[^\s/:@\"'<>\\]{16,}(?=@)"),
    _rule("sig=;signature=;x-amz-;key=;code=",
          rb"[?&](?:sig|signature|x-amz-(?:signature|credential|security-token)|key|code)=(?!MARK)",
          rb"[^\s&\"'<>#\\]{8,}"),
    _rule("sig=;signature=;x-amz-",
          rb"(?<![\w.?&-])(?:sig|signature|x-amz-(?:signature|credential|security-token))=(?!MARK)(?=[^\s&]*\d)",
          rb"[^\s&\"'<>#\\,;]{16,}"),
    # commands
    _rule("curl;wget;http", rb"\b(?:curl|wget|https?)\b" + _SAME + rb"[ \t\"',](?:-u|--user|-U|--proxy-user|--auth|-a)"
          rb"[ \t=,\\]*(?P<q>[\"'])[^\"':\r\n]*:(?!MARK)", _IN_QUOTES),
    _rule("curl;wget;http", rb"\b(?:curl|wget|https?)\b" + _SAME + rb"[ \t\"',](?:-u|--user|-U|--proxy-user|--auth|-a)"
          rb"[ \t=,\"'\\]*[^\s:\"'/\\]*:(?!MARK|//)", rb"[^\s\"'\\]+"),
    _rule("sshpass", rb"\bsshpass[ \t]+-p[ \t]*(?!MARK)", _OPTION),
    _rule("ipmitool", rb"\bipmitool\b" + _SAME + rb"[ \t]-[Pky][ \t]*", _OPTION),
    _rule("password", rb"\b(?:user|lan)[ \t]+set[ \t]+(?:\d+[ \t]+)?password[ \t]+(?:\d+[ \t]+)?", _OPTION),
    _rule("lan set", rb"\blan[ \t]+set[ \t]+\d+[ \t]+snmp[ \t]+", _OPTION),
    _rule("racadm", rb"\bracadm\b" + _SAME + rb"password(?:[ \t]+-i[ \t]+\d+)?[ \t]+(?!-)", _OPTION),
    _rule("login", rb"\b" + _LOGINS + rb"\b" + _SAME + rb"\blogin\b" + _SAME + rb"[ \t]-p[ \t=]*", _OPTION),
    _rule(" -p", rb"\b" + _TOOLS + rb"\b" + _SAME + rb"[ \t]-[pP][ \t]*(?=\S)", _OPTION),
    _rule("mysql;maria", rb"\b(?:mysql|mariadb)\w*\b" + _SAME + rb"[ \t]-p(?=[^\s\d-])", _OPTION),
    _rule("weka", rb"\bweka[ \t]+user[ \t]+"
          rb"(?:login[ \t]+\S+|add[ \t]+\S+[ \t]+\S+|passwd(?:[ \t]+--username[ \t]+\S+)?)[ \t]+(?!-)",
          _OPTION),
    _rule("mc ", rb"\bmc[ \t]+(?:alias[ \t]+set|config[ \t]+host[ \t]+add)[ \t]+\S+[ \t]+\S+[ \t]+\S+[ \t]+", _OPTION),
    _rule("wandb;huggingface", rb"\b(?:wandb|huggingface-cli)[ \t]+login[ \t]+(?:--relogin[ \t]+)?(?!-)", _OPTION),
    _rule("ldap;kadmin", rb"\b(?:ldap\w+|kadmin(?:\.local)?)\b" + _SAME + rb"[ \t]-w[ \t]+", _OPTION),
    _rule("ldappasswd", rb"\bldappasswd\b" + _SAME + rb"[ \t]-[sa][ \t]+", _OPTION),
    _rule("kadmin", rb"\b(?:addprinc|ank|cpw|change_password)\b" + _SAME + rb"[ \t]-pw[ \t]+", _OPTION),
    _rule("redis-cli", rb"\bredis-cli\b" + _SAME + rb"[ \t]-a[ \t]+", _OPTION),
    _rule("pass:", rb"-pass(?:in|out)?[ \t]+pass:", _OPTION),
    _rule("openssl", rb"\bopenssl[ \t]+enc\b" + _SAME + rb"[ \t]-[kK][ \t]+", _OPTION),
    _rule("%", rb"[ \t]-U[ \t]*[\"']?[\w\\.-]+%", rb"(?!MARK)[^\s\"']+"),
    _rule("pass=", rb"(?:^|[\s,])(?:user(?:name)?|domain)=[^\s,]*,(?:[^\s]*,)?pass=(?!MARK)",
          rb"[^\s,\"')]+"),
    _rule("pwd=", rb";[ \t]*pwd=(?!MARK)", rb"[^;\"'\r\n]+"),
    _rule("pwd=", rb"(?:^|[\s,&])pwd=(?![/~.]|MARK)", rb"[^\s;,&\"']+"),
    _rule("requirepass;masterauth", rb"^[ \t]*(?:requirepass|masterauth)[ \t]+", _OPTION),
    _rule("useradd;usermod", rb"\buser(?:add|mod)\b" + _SAME + rb"[ \t]-p[ \t]*(?=\S)", _OPTION),
    _rule("|", rb"\b(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+)?(?!MARK)", rb"[^\r\n|]+?",
          rb"[ \t]*\|[ \t]*(?:sudo[ \t]+(?!-S))?" + _PIPED),
    _rule("<<<", rb"\b(?:passwd|chpasswd|kinit|cryptsetup|sudo|docker|podman)\b[^\r\n<]*<<<[ \t]*", _OPTION),
    _rule("password", rb"(?:\blogin|\baccount)[ \t]+\S+\s+password[ \t]+(?!MARK)", rb"\S+"),
    _rule("password", rb"-n[ \t]+\S*password(?:_in)?[ \t]+-v[ \t]+", _OPTION),
    # SNMP, RADIUS
    _rule("community", rb"SNMP Community String[ \t]*:[ \t]*(?!MARK)(?=[^\s])", rb"[^\r\n]+"),
    _rule("community", rb"(?:\br[ow]community6?|\bsnmp-server[ \t]+community)[ \t]+", _OPTION),
    _rule("com2sec", rb"\bcom2sec6?[ \t]+\S+[ \t]+\S+[ \t]+", _OPTION),
    _rule("createuser", rb"\bcreateUser[ \t]+(?:-e[ \t]+\S+[ \t]+)?\S+[ \t]+(?:MD5|SHA\S*)[ \t]+",
          _OPTION + rb"(?:[ \t]+(?:DES|AES\S*)[ \t]+\S+)?"),
    _rule("snmp", rb"\bsnmp(?:get|walk|bulkwalk|set|trap|table|status)\b" + _SAME + rb"[ \t]-[cAX][ \t]*", _OPTION),
    _rule("radius;tacacs", rb"\b(?:radius|tacacs)\S*[ \t][^\r\n]*?\bkey[ \t]+(?:\d[ \t]+)?", _OPTION),
    # docker's config.json: "auth": "dXNlcjpwYXNz…"
    _rule("auth\";auth\\;_auth;auth:;auth=;auth'", rb"(?<![\w.-])_?auth" + _Q + rb"?[ \t]*[:=][ \t]*" + _Q + rb"?",
          rb"[A-Za-z0-9+/]{12,}={0,2}(?![\w./-])"),
    # keys of Kerberos, of subnet managers, of disks
    _rule("(0x", rb"@\S+[^\r\n]*\(0x", rb"[0-9a-f]{16,}"),
    _rule("-cts-", rb"\b(?:aes|camellia)\d+-cts-[\w-]+:[ \t]*", rb"[0-9a-f]{32,}"),
    _rule("_key", rb"^[ \t]*(?:m|sm|sa|vs|cc|n2n|am)_key[ \t]+(?!0x0+\b)", rb"0x[0-9a-f]+"),
    # the upper part of a key was cut
    _rule("private key", rb"^(?=[A-Za-z0-9+/=]{16,}\r?$(?:\r?\n[A-Za-z0-9+/=]+\r?$){0,80}\r?\n-----END [A-Z ]*PRIVATE)",
          rb"[A-Za-z0-9+/=]{16,}"),
    _rule("-----end ", rb"^(?=[A-Za-z0-9+/=]{1,76}\r?\n-----END [A-Z ]*PRIVATE)(?!MARK)",
          rb"[A-Za-z0-9+/=]{1,76}"),
    # wg show … dump: the interface's own key, the peer's pre-shared key
    Rule((b"=\t",), re.compile(
        rb"(?m)(?P<h>^(?:[\w.-]+\t)?)[A-Za-z0-9+/]{43}=(?P<t>\t[A-Za-z0-9+/]{43}=\t\d+\t(?:off|0x[0-9a-f]+)\r?$)")),
    Rule((b"=\t",), re.compile(
        rb"(?m)(?P<h>^(?:[\w.-]+\t)?[A-Za-z0-9+/]{43}=\t)[A-Za-z0-9+/]{43}=(?P<t>\t[^\t\r\n]+\t[^\t\r\n]+\t\d+\t\d+\t\d+)")),
)  # fmt: skip

_FREE: Final = rb"(?<![A-Za-z0-9_+/-])"

FORMATS: Final = (
    # this field
    _format("aq", rb"(?<![A-Za-z0-9+/])AQ[A-Za-z0-9+/]{36}=="),  # cephx
    Rule((b"munge:",), re.compile(rb"(?P<h>MUNGE:)[A-Za-z0-9+/=]+(?P<t>:?)")),
    _format("dhhc-1:", rb"\bDHHC-1:[0-9A-Fa-f]{2}:[A-Za-z0-9+/=]+:?"),  # NVMe over fabrics
    _format("nvmetlskey-1:", rb"\bNVMeTLSkey-1:[0-9A-Fa-f]{2}:[A-Za-z0-9+/=]+:?"),
    _format("nvapi-", rb"\bnvapi-[\w-]{20,}"),  # NGC
    _format("$", rb"\$(?:1|2[abxy]?|5|6|7|y|gy|apr1)\$[./A-Za-z0-9$=,]{20,}"),  # crypt(3)
    _format("$argon2;$pbkdf2;$scrypt", rb"\$(?:argon2\w+|pbkdf2\S*?|scrypt)\$[./A-Za-z0-9$=,+]{20,}"),
    _format("grub.pbkdf2", rb"(?<=grub\.pbkdf2\.)sha\d+\.\d+\.[0-9A-Fa-f.]{32,}"),
    _format("{sha;{ssha;{smd5;{md5", rb"\{S?(?:SHA|MD5)\d*\}[A-Za-z0-9+/=]{20,}"),  # LDAP
    _format("::server:;::node:", _FREE + rb"K10[0-9a-f]{40,}::(?:server|node):\w+"),  # k3s
    _format("age-secret-key-", rb"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    # detect-secrets, gitleaks
    _format("eyj", rb"\beyJ[\w-]{8,}\.[\w-]{8,}\.?[\w-]*"),  # JSON web token
    _format("akia;asia;abia;acca", rb"(?<![A-Z0-9])A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Z0-9])"),  # AWS
    _format("ghp_;gho_;ghu_;ghs_;ghr_", _FREE + rb"gh[pousr]_[A-Za-z0-9]{30,}"),
    _format("github_pat_", _FREE + rb"github_pat_\w{30,}"),
    _format(
        "glpat-;gldt-;glrt-;glsoat-;glcbt-;glptt-;glft-;glimt-;glagent-;gloas-",
        _FREE + rb"(?:glpat|gldt|glrt|glsoat|glcbt|glptt|glft|glimt|glagent|gloas)-[\w-]{20,}",
    ),
    _format("hf_;api_org_", _FREE + rb"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    _format("xox;xapp-", _FREE + rb"(?:xox[abeoprs]|xapp)-[\w-]{10,}"),  # Slack
    _format("hooks.slack.com", rb"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/+-]{20,}"),
    _format("webhook", rb"(?<=discord\.com/api/webhooks/)\d+/[\w-]{20,}|(?<=webhook\.office\.com/)\S{20,}"),
    _format("k_live_;k_test_", _FREE + rb"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"),  # Stripe
    _format("sk-", _FREE + rb"sk-(?:ant-|proj-|svcacct-|admin-)?[\w-]{20,}"),  # Anthropic, OpenAI
    _format("sg.", _FREE + rb"SG\.[\w-]{20,}\.[\w-]{20,}"),  # SendGrid
    _format("hvs.;hvb.;hvr.", _FREE + rb"hv[sbr]\.[\w-]{20,}"),  # Vault
    _format("atlasv1.", rb"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}"),  # Terraform
    _format("npm_", _FREE + rb"npm_[A-Za-z0-9]{36}"),
    _format("pypi-", _FREE + rb"pypi-AgE[\w-]{50,}"),
    _format("dckr_", _FREE + rb"dckr_(?:pat|oat)_[\w-]{20,}"),  # Docker Hub
    _format("aiza;ya29.;gocspx-", _FREE + rb"(?:AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{28})"),  # Google
    _format("dop_v1_;doo_v1_;dor_v1_", _FREE + rb"do[opr]_v1_[a-f0-9]{64}"),  # DigitalOcean
    _format("dapi", _FREE + rb"dapi[a-f0-9]{32}"),  # Databricks
    _format("glsa_;glc_", _FREE + rb"(?:glsa|glc)_[\w+/=]{30,}"),  # Grafana
    _format("tskey-", _FREE + rb"tskey-[a-z]+-[\w-]{10,}"),  # Tailscale
    _format("atatt3;atctt3", _FREE + rb"AT[AC]TT3[\w=-]{50,}"),  # Atlassian
    _format("nrak-", _FREE + rb"NRAK-[A-Z0-9]{27}"),  # New Relic
    _format("sntrys_;sntryu_", _FREE + rb"sntry[su]_[\w=+/-]{30,}"),  # Sentry
    _format("pul-", _FREE + rb"pul-[a-f0-9]{40}"),  # Pulumi
    _format("pmak-", _FREE + rb"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),  # Postman
    _format("lin_api_", _FREE + rb"lin_api_[A-Za-z0-9]{40}"),  # Linear
    _format("shpat_;shpss_;shpca_;shppa_", _FREE + rb"shp(?:at|ss|ca|pa)_[a-fA-F0-9]{32}"),  # Shopify
    _format("r8_;gsk_;pplx-", _FREE + rb"(?:r8_[A-Za-z0-9]{37}|gsk_[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{40,})"),
    _format(":aa", rb"(?<!\d)\d{8,10}:AA[\w-]{33}(?![\w-])"),  # Telegram
    _format(
        "accountkey=;sharedaccesskey", rb"(?<=AccountKey=)[A-Za-z0-9+/=]{40,}|(?<=SharedAccessKey=)[A-Za-z0-9+/=]{40,}"
    ),
    _format("8q~", _FREE + rb"[A-Za-z0-9_-]{3}8Q~[\w.~-]{31,34}"),  # Microsoft Entra
)  # fmt: skip
"""Unambiguous formats, which need no name; each is a run of at least 16 of ``LONG``'s characters."""

LONG: Final = re.compile(rb"[\w.~+/=:${},-]{16,}")

PEM: Final = re.compile(
    rb"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|^Private-Lines: \d+\r?$)"
    rb"(.*?(?=-----END )"
    rb"|(?:\r?\n(?:[A-Za-z0-9+/=]+|[A-Z][\w-]+: [^\r\n]*|" + re.escape(_MARK) + rb")?(?=\r?\n|\Z)"
    rb"|(?:\\+r)?\\+n(?:[A-Za-z0-9+/=]+|[A-Z][\w-]+: [^\r\n\\]*)?|[ \t]+[A-Za-z0-9+/=]{16,})*)",
    re.DOTALL | re.MULTILINE,
)
"""A private key, of PuTTY too, on many lines or on one, whole or with its end cut."""

SECRET_FILE: Final = re.compile(
    r"\b(?:cat|base64|xxd|od|hexdump|head|tail|strings|dd|grep|sed|awk|jq|zcat|less|more)\b[^|;&\n]*"
    r"(?:munge\.key|/etc/g?shadow|/\.my\.cnf|/id_(?:rsa|ed25519|ecdsa|dsa)(?!\.pub)\b|\.keyring\b|/secrets?/|\.keytab\b"
    r"|ssh_host_\w+_key(?!\.pub)\b|jwt_hs256\.key|/\.netrc|/\.pgpass|\.enroot/\.credentials|\.vault-token|connauthfile"
    r"|auth-token\.json|/private/[\w./-]+\.(?:key|pem)|\.(?:p12|pfx|jks|kdbx)\b|\.docker/config\.json)"
)
"""Commands that print a file of secrets: their whole output is redacted."""
