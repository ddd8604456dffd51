from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.chat.secrets import MARK, masked, masked_pieces, secrets_in

RUN = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7dE9fG1hJ3kL5mN7pQ9rS1tU3v"
HEX = "0123456789abcdef" * 4
JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{RUN[:43]}"
PEM = "\n".join(
    ["-----BEGIN RSA PRIVATE KEY-----", *["MIIEpAIBAAKCAQEA" + RUN[:48]] * 6, "-----END RSA PRIVATE KEY-----"]
)

#: Keys that are known wherever they stand.
SHAPED = {
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "AWS, for a session": "ASIA" + "IOSFODNN7EXAMPLE",
    "Google": "AIza" + RUN[:35],
    "Google OAuth": "ya29." + RUN[:40],
    "Google client": "GOCSPX-" + RUN[:28],
    "GitHub": "ghp_" + RUN[:36],
    "GitHub, fine-grained": "github_pat_11" + RUN[:20] + "_" + RUN[:59],
    "GitHub app": "ghs_" + RUN[:36],
    "GitLab": "glpat-" + RUN[:20],
    "GitLab runner": "glrt-" + RUN[:20],
    "Slack bot": "xoxb-1234567890-1234567890123-" + RUN[:24],
    "Slack app": "xapp-1-A0123456789-1234567890123-" + HEX,
    "Slack webhook": "https://hooks.slack.com/services/T00000000/B00000000/" + RUN[:24],
    "Stripe": "sk_live_" + RUN[:24],
    "Stripe, long": "sk_live_51" + RUN + RUN[:33],
    "Stripe, test": "rk_test_" + RUN[:24],
    "Stripe webhook": "whsec_" + RUN[:32],
    "OpenAI": "sk-" + RUN[:48],
    "OpenAI project": "sk-proj-" + RUN[:40] + "_-" + RUN[:30],
    "Anthropic": "sk-ant-api03-" + RUN[:40] + "-_" + RUN[:40] + "AA",
    "OpenRouter": "sk-or-v1-" + HEX,
    "DeepSeek": "sk-" + HEX[:32],
    "Hugging Face": "hf_" + RUN[:34],
    "npm": "npm_" + RUN[:36],
    "PyPI": "pypi-AgEIcHlwaS5vcmc" + RUN + RUN,
    "Groq": "gsk_" + RUN[:52],
    "xAI": "xai-" + RUN[:60],
    "SendGrid": "SG." + RUN[:22] + "." + RUN[:43],
    "Square": "sq0csp-" + RUN[:43],
    "Vault": "hvs." + RUN[:24],
    "DigitalOcean": "dop_v1_" + HEX,
    "Shopify": "shpat_" + HEX[:32],
    "Telegram": "123456789:AA" + RUN[:33],
    "Mailchimp": HEX[:32] + "-us12",
    "age": "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2,
    **{
        name: prefix + HEX[:40]
        for name, prefix in (
            *(("Perplexity", "pplx-"), ("Replicate", "r8_"), ("Fireworks", "fw_"), ("Tavily", "tvly-dev-")),
            *(("NVIDIA", "nvapi-"), ("Alibaba", "LTAI5t"), ("Tencent", "AKID"), ("Databricks", "dapi")),
            *(("Grafana", "glsa_"), ("Linear", "lin_api_"), ("Notion", "ntn_"), ("Postman", "PMAK-")),
            *(("Docker", "dckr_pat_"), ("Atlassian", "ATATT3"), ("Supabase", "sbp_"), ("Doppler", "dp.pt.")),
            *(("RubyGems", "rubygems_"), ("Jina", "jina_"), ("Cerebras", "csk-"), ("PostHog", "phx_")),
        )
    },
    "JWT": JWT,
}

#: Where a key may stand.
PLACES = (
    "{}",
    "the key is {}, use it",
    "我的密钥是{}，请用它。",
    "（{}）",
    "export KEY={}",
    "KEY='{}'",
    '{{"key": "{}"}}',
    "line\\n{}\\nline",
    "https://api.example.com/v1?x={}&y=2",
    "a\n\n{}\nb",
    "curl -H 'X-Key: {}' https://example.com",
    "`{}`",
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("key", SHAPED.values(), ids=SHAPED)
def test_a_key_with_a_shape_of_its_own_is_masked_wherever_it_stands(key: str, place: str) -> None:
    result = masked(place.format(key))
    assert MARK in result
    assert key not in result
    assert key[12:] not in result


#: Each holds one secret, between the marks.
NAMED = (
    # Shells and files of settings.
    "export OPENAI_API_KEY=«abcdef123456»",
    "DB_PASSWORD=«correcthorse»",
    "DB_PASS='«swordfish»'",
    "DB_PASSWORD=«super_secret_pw»",
    'MYSQL_PWD="«p4ss word»"',
    "PGPASSWORD=«letmein» psql -h db",
    "set SECRET_KEY_BASE=«0f1e2d3c4b5a69788796a5b4c3d2e1f0»",
    "$env:API_TOKEN = '«zz9plural7za»'",
    "aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
    "AWS_SECRET_ACCESS_KEY=«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
    "API_KEY_PROD=«q1w2e3r4t5y6»",
    "password: «hunter2»",
    "password: «letmein»\nuser: bob",
    "  db-password:   '«it is a long phrase»'",
    "redis:\n  auth_token: «9d8c7b6a5f4e»",
    "requirepass=x\npassword = «Tr0ub4dor&3»",
    # JSON, also inside JSON, and code.
    '{"password": "«hunter2»"}',
    '{"user": "bob", "apiKey":"«k3yk3yk3y»", "n": 1}',
    '{"client_secret": "«GwYzAbCdEf»"}',
    '{"arguments": "{\\"password\\": \\"«s3cr3t w0rd»\\"}"}',
    '{"text": "password: «hunter2»\\nuser: bob"}',
    '{"auths": {"r.example.com": {"auth": "«Ym9iOmh1bnRlcjI=»"}}}',
    'password = "«correct horse battery staple»"',
    "login(user='bob', password='«hunter2»')",
    'password: str = "«hunter2»"',
    'config["password"] = "«hunter2»"',
    "conn = connect(pwd=«s3cr3t», host=h)",
    "const secret = '«abcdefgh»';",
    "<password>«hunter2»</password>",
    # Connection strings and URLs.
    "postgres://bob:«hunter2»@db.example.com:5432/app",
    "postgresql+psycopg://bob:«p@ss»@db/app",
    "redis://:«hunter2»@localhost:6379/0",
    "mongodb+srv://bob:«hunter2»@cluster0.mongodb.net/?retryWrites=true",
    "amqp://guest:«guest»@rabbit/",
    "https://oauth2:«anything»@git.example.com/a.git",
    "Server=db;User Id=sa;Password=«Xy12345Zz»;Encrypt=true",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«" + RUN + RUN[:22] + "==»;EndpointSuffix=core",
    "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=«" + RUN[:43] + "=»",
    "https://a.blob.core.windows.net/c?sv=2022&sig=«aB3dE5fG7hJ9kL1mN3pQ5rS7%2F»&se=2024",
    "https://api.example.com/v1?access_token=«abc123def456»&page=2",
    "https://example.com/login?password=«letmein»&user=bob",
    # Headers and options.
    "Authorization: Bearer «abcdef0123456789»",
    '{"Authorization": "Bearer «mF_9.B5f-4.1JqM»"}',
    "authorization: Basic «Ym9iOmh1bnRlcjI=»",
    "Authorization: token «abcdef0123456789»",
    "-H 'authorization: bearer «abcdef0123456789»'",
    "Authorization: Basic «dXNlcjpwYXNz»",
    "send it as Bearer «abcdef0123456789»",
    "X-Api-Key: «abc123def456»",
    "x-auth-token: «abc123def456»",
    "Cookie: theme=dark; session=«s3ss10nid0123456»",
    "curl -u bob:«hunter2» https://example.com",
    "curl -s --user 'bob:«hunter2»' https://example.com",
    "mysql -u root -p«hunter2» app",
    "sshpass -p '«hunter2»' ssh bob@host",
    "docker login -u bob --password «hunter2» r.example.com",
    "tool --db-password «letmein» --verbose",
    "tool --token=«abc123def456»",
    "CREATE USER bob WITH PASSWORD '«hunter2»';",
    "machine h login bob password «hunter2»",
    # Said in prose.
    "my password is «hunter2»",
    "The password is «swordfish».",
    "the password for the server is «Tr0ub4dor&3»",
    "the wifi password is «correct-horse-battery-staple»",
    'The root password was "«swordfish»", I think',
    "Password (staging): «hunter2»",
    "**Password**: «hunter2»",
    "**Password:** `«hunter2»`",
    "I set the password to «hunter2», remember it",
    "password changed to «hunter2»",
    "use password «hunter2» to log in",
    "the PIN passcode is «839201»",
    "our API key is «abc123def456»",
    "the secret token is «abc123def456», don't share it",
    "密码：«hunter2»",
    "密码:«hunter2»",
    "密码是«hunter2»，别忘了",
    "我的密码是 «hunter2»。",
    "密码为“«hunter2»”。",
    "数据库密码：«Abc@12345»；端口：5432",
    "把密码改成了«hunter2»",
    "用户名 admin 密码 «hunter2»",
    "用户名：admin，密码：«admin»",
    "银行卡密码：«123456»",
    "API密钥：«abc123def456»",
    "访问令牌是«abc123def456»。",
    "口令：「«hunter2»」",
)


@pytest.mark.parametrize("text", NAMED)
def test_what_a_name_or_a_place_gives_away_is_masked_and_nothing_else(text: str) -> None:
    plain = text.replace("«", "").replace("»", "")
    before, rest = text.split("«")
    secret, after = rest.split("»")
    assert masked(plain) == before + MARK + after
    assert secrets_in(plain) == [secret]


STAYS = (
    "",
    "the password is wrong",
    "The password is wrong.",
    "the password is required, and the token is missing",
    "Your password is too short. The password was reset.",
    "password is case-sensitive",
    "the secret is patience",
    "a password must be at least 8 characters",
    "password: must be at least 8 characters",
    "Password: required",
    "forgot password: click here",
    "max_tokens=4096",
    "max_tokens: 4096, total_tokens: 812",
    "token count: 812",
    "tokens: 812",
    "token: 812",
    '{"usage": {"prompt_tokens": 1200, "completion_tokens": 30}}',
    '{"token": "hello", "logprob": -0.1}',
    '{"nextPageToken": "CAUQAA12345"}',
    "next_page_token=abc123def456",
    "eos_token: <|im_end|>",
    'eos_token = "<|endoftext|>"',
    "token_type: bearer",
    'api_key = os.environ["KEY"]',
    "api_key = os.environ['OPENAI_API_KEY']",
    'api_key = os.getenv("KEY")',
    "api_key=api_key",
    "password = getpass.getpass()",
    "password = input('Password: ')",
    "connect(user=user, password=password)",
    "connect(user=user, password=user_password)",
    "self.password = password",
    "password=self.password",
    "Client(api_key=server.api_key)",
    "token = tokens[0]",
    "token = next_token()",
    "for token in tokens: print(token)",
    "def login(user: str, password: str) -> None:",
    "def login(user: str, password: str = None) -> None:",
    "password: Optional[str] = None",
    "password: SecretStr",
    "secret: bool = True",
    "if password == '':",
    "export API_KEY=$OTHER_KEY",
    "PASSWORD=${DB_PASSWORD}",
    "PASSWORD = default_password",
    '{"description": "the Password of the user"}',
    '{"password": "The Password of the user"}',
    "password: ${{ secrets.DB_PASSWORD }}",
    "password: {{ vault_password }}",
    "password: <your-password>",
    "password: ********",
    "api_key: your-api-key-here",
    '"api_key": "your_api_key"',
    '{"type": "string", "name": "password"}',
    '{"password": null, "token": "", "secret": false}',
    '{"password": {"type": "string"}}',
    '{"password": "Enter your password:"}',
    "password_file: /run/secrets/db",
    "PWD=/home/bob/work",
    "OLDPWD=/home/bob",
    "secret: /run/secrets/db",
    "ssl_key = /etc/ssl/private/server.key",
    "PASS: tests/chat/test_secrets.py::test_it",
    "42 pass: 3 fail",
    "key: value",
    "primary key: id",
    "cache key=user:42",
    "press any key to continue",
    "the monkey: 42abc1234",
    "Secretary: Anna1234",
    "author: bob12345678",
    "commit 3f2a9c1e8b7d6f5a4c3b2a1908f7e6d5c4b3a291",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "id: 550e8400-e29b-41d4-a716-446655440000",
    "user_id: mia_li_3668, reservation NO6JO3, flight HAT136",
    "booking code XEHM4B, PNR ABC123",
    "order #W2378156 for yusuf_rossi_9620",
    "session_id=3f2a9c1e8b7d6f5a",
    "/usr/lib/python3.11/site-packages/sk-learn/token.py",
    "C:\\Users\\bob\\password\\notes.txt",
    "pip install scikit-learn sk-learn-based-approach-to-things",
    "task-force-1234567890abcdef and risk-2024assessment",
    "npm_config_registry_something_else=1 and hf_model_name_or_path_config",
    "secret_manager_service_account_key_name",
    "glob-pattern-for-something-long and global-variable-name",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA",
    "https://example.com/a/b?x=1&y=2#frag",
    "http://localhost:8080/v1",
    "http://[::1]:8080/a@b",
    "git@github.com:owner/repo.git",
    "mail bob@example.com at 10:30",
    "postgres://bob:${PASSWORD}@db/app",
    "postgres://$USER:$PASSWORD@db/app",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>",
    "uses bearer authentication, the bearer of news",
    "Authorization: missing in the request",
    "curl -s https://example.com -o out.txt",
    "docker run -u 1000:1000 image",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
    "密码是错的",
    "密码错误，请重试",
    "密码为空",
    "密码长度：812",
    "密码至少8位",
    "令牌数：4096",
    "令牌：4096",
    "这个密码不对",
    "忘记密码",
    f"password: {MARK}",
    f"{MARK}: hunter22x",
    "import secrets; secrets.token_hex(16)",
    "from perdure.chat.secrets import masked",
    "secrets.compare_digest(a, b)",
    "token = secrets.token_urlsafe(32)",
    "authentication: 3 of 12345678 passed",
    "TOKEN_LIMIT=100000",
    "keyboard: us-intl",
)


@pytest.mark.parametrize("text", STAYS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("kind", ["RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "DSA ", "", "PGP "])
def test_a_private_key_goes_as_a_whole(kind: str) -> None:
    block = " BLOCK" if kind == "PGP " else ""
    key = PEM.replace("RSA PRIVATE KEY", f"{kind}PRIVATE KEY{block}")
    assert masked(f"before\n{key}\nafter") == f"before\n{MARK}\nafter"
    inside = json.dumps({"private_key": key, "n": 1})
    assert masked(inside) == json.dumps({"private_key": MARK, "n": 1})
    assert masked(" ".join(key.split())) == MARK


def test_a_private_key_whose_end_is_missing_goes_as_far_as_it_looks_like_one() -> None:
    cut = PEM.rpartition("\n")[0]
    assert masked(f"{cut}\n... cut here") == f"{MARK}\n... cut here"
    assert masked(f"{PEM[:60]}") == MARK


def test_two_private_keys_take_nothing_between_them_along() -> None:
    assert masked(f"{PEM}\nbetween\n{PEM}") == f"{MARK}\nbetween\n{MARK}"


def test_secrets_are_listed_in_order() -> None:
    text = f"password: hunter2 and {SHAPED['GitHub']}, then redis://:pw@h"
    assert secrets_in(text) == ["hunter2", SHAPED["GitHub"], "pw"]


def test_importing_it_loads_no_detector() -> None:
    listing = (
        "import perdure.chat.secrets as s; s.masked('password is wrong'); import sys; print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    assert not {"detect_secrets", "requests", "yaml"} & set(run.stdout.split())


def test_many_threads_mask_alike() -> None:
    texts = [place.format(key) for key in SHAPED.values() for place in PLACES]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(masked, texts)) == [masked(text) for text in texts]


# --- properties ---------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *(
            " ",
            "\n",
            "\\n",
            '"',
            "'",
            '\\"',
            ":",
            "：",
            "=",
            "@",
            "://",
            "/",
            ".",
            ",",
            "-",
            "_",
            "]",
            "[",
            MARK,
        ),
        *(
            "password",
            "密码",
            "api_key",
            "token",
            "secret",
            "key",
            " is ",
            "是",
            " to ",
            "Authorization: ",
            "Bearer ",
        ),
        *(
            "Cookie: ",
            "curl -u ",
            "a",
            "B",
            "7",
            "hunter2",
            "eyJ",
            "sk-",
            "ghp_",
            "AKIA",
            RUN[:20],
            RUN,
            JWT,
            PEM,
        ),
        *(
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "hf_",
            "glpat-",
            "(",
            "%3D",
            "，",
            "字",
            "🙂",
        ),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=25).map("".join)


@given(TEXTS)
@example("\ud800 password: \ud800abc1")
@example("İ" * 50 + "password: hunter2")
def test_masking_again_changes_nothing(text: str) -> None:
    once = masked(text)
    assert masked(once) == once
    assert secrets_in(once) == []


WORDS = st.lists(
    st.sampled_from(
        ["the", "we", "read", "src/a.py", "line", "42", "好", "文件", "value", "a,", "b.", "(d)"]
    ),
    max_size=20,
).map(" ".join)


@given(WORDS, WORDS, st.sampled_from(sorted(SHAPED.values())), st.sampled_from(PLACES))
def test_no_planted_key_survives_inside_text(before: str, after: str, key: str, place: str) -> None:
    text = f"{before}\n{place.format(key)}\n{after}"
    assert key not in masked(text)
    assert key not in masked(json.dumps({"text": text}, ensure_ascii=False))
    assert key not in masked(" ".join(text.split()))


@given(WORDS, WORDS, st.sampled_from(sorted(SHAPED.values())), st.lists(st.integers(0, 400), max_size=6))
def test_of_a_text_in_pieces_none_holds_a_part_of_a_key(
    before: str, after: str, key: str, borders: list[int]
) -> None:
    text = f"{before} {key} {after}"
    ends = sorted({min(border, len(text)) for border in borders} | {len(text)})
    pieces = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    kept = masked_pieces(pieces)
    assert len(kept) == len(pieces)
    # As if it were one, but for a mark on both sides of a border.
    assert "".join(kept).replace(MARK, "") == masked(text).replace(MARK, "")
    assert masked_pieces([text]) == [masked(text)]


PASSWORDS = st.from_regex(r"[A-Za-z]{3,8}[0-9]{1,4}[!@#$%^*+=?~]?[A-Za-z0-9]{1,8}", fullmatch=True)
FORMS = st.sampled_from(
    [
        *(
            "password={}",
            "password: {}",
            "PASSWORD='{}'",
            '"password": "{}"',
            "the password is {}",
            "密码：{}",
        ),
        *("密码是{}。", "DB_PASSWORD={}", "--password {}", "password={}&x=1", '{{"db_password":"{}","n":1}}'),
        "redis://u:{}@host/0",
    ]
)


@given(WORDS, WORDS, PASSWORDS, FORMS)
@example("", "", "AAA0=0", "password: {}")
@example("", "", "AAA00", "--password {}")
@example("", "", "hunter22", 'password: str="{}"')
def test_no_planted_password_survives_inside_text(before: str, after: str, password: str, form: str) -> None:
    text = f"{before}\n{form.format(password)}\n{after}"
    assert password not in masked(text)
    assert password not in masked(json.dumps({"text": text}, ensure_ascii=False))
    if "://" in form:
        assert quote(password) not in masked(text.replace(password, quote(password)))


@given(st.text(alphabet="abcdefghij 字文，。\n", max_size=300))
def test_text_without_a_name_or_a_prefix_is_given_back_as_it_is(text: str) -> None:
    assert masked(text) == text
